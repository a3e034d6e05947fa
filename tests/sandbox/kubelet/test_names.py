from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.rules import explain_resource_name, is_extended_resource_name
from tests.making.recorded_cases import cases_in

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_ACCEPTED = rf"{_LABEL}(\.{_LABEL})*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
"""Kubernetes' expressions for a DNS name and a qualified name."""
_FILE = Path(__file__).parents[2] / "vectors" / "kubelet" / "resource_names.jsonl"


@pytest.mark.parametrize("case", cases_in(_FILE), ids=lambda case: repr(case["name"]))
def test_verdict_is_the_kubelets(case: dict[str, Any]) -> None:
    assert is_extended_resource_name(case["name"]) is case["valid"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gpu", "resource name 'gpu' has no domain; write it as domain/name, for example example.com/gpu"),
        ("foo.kubernetes.io/x", "contains 'kubernetes.io/', which is kept for Kubernetes itself"),
        ("requests.nvidia.com/gpu", "starts with 'requests.', which is kept for quotas"),
        ("nvidia.com/gpu/0", "has more than one '/'"),
        ("Nvidia.com/gpu", "has the domain 'Nvidia.com', which is not a DNS name; use lower-case letters"),
        (f"{'a' * 245}/gpu", "has a domain of 245 characters; 244 are allowed"),
        (f"nvidia.com/{'x' * 64}", "has 64 characters behind the '/'; 63 are allowed"),
        ("nvidia.com/-gpu", "has '-gpu' behind the '/'; use letters, digits, '-', '_' and '.'"),
        ("nvidia.com/gpu\n", "has 'gpu\\n' behind the '/'"),
    ],
)
def test_refused_name_is_explained_with_the_fix(name: str, sentence: str) -> None:
    explanation = explain_resource_name(name)
    assert explanation is not None
    assert sentence in explanation


def test_accepted_name_needs_no_explanation() -> None:
    assert explain_resource_name("nvidia.com/mig-1g.10gb") is None


@given(st.text("aZ09-_.é\n /", max_size=7), st.text("aZ09-_.é\n ", max_size=7))
def test_the_verdict_is_that_of_kubernetes_expressions(domain: str, rest: str) -> None:
    name = f"{domain}/{rest}"
    assert is_extended_resource_name(name) is bool(re.fullmatch(_ACCEPTED, name))
