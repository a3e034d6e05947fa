"""``ostler pools explain``: its options, what it can be asked about, and unusable input."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduling.pools.documents import API_VERSION
from scheduling.pools.need import EXAMPLE
from scheduling.pools.reading import encode
from tests.making.pool_documents import A100S, CLASSES, a100s, claim, class_, documents, having

Explain = Callable[..., str]


def test_colours_and_one_node(explain: Explain, tmp_path: Path) -> None:
    path = documents(tmp_path, *CLASSES, A100S, a100s("node-2"))
    printed = explain("--from", path, "--node", "node-2", "--color", "always", needs=[{}], code=0)
    assert printed.startswith("\x1b[1mclaim trainer\x1b[0m \x1b[32mfits on node-2\x1b[0m\n")


def test_need_on_standard_input(explain: Explain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = yaml.safe_dump(encode(claim({}, name="trainer")))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    printed = explain("-f", "-", "--from", documents(tmp_path, *CLASSES, A100S), code=0)
    assert printed.startswith("claim trainer fits on node-1\n")


def test_pools_beside_the_need_are_thought_of_as_there(explain: Explain, tmp_path: Path) -> None:
    asked = documents(tmp_path, claim({}, name="trainer"), *CLASSES, A100S, name="need.yaml")
    assert explain("-f", asked, "--from", documents(tmp_path, class_("other")), code=0).startswith("claim trainer fits")


def test_file_without_a_claim(explain: Explain, tmp_path: Path) -> None:
    path = documents(tmp_path, *CLASSES, A100S)
    assert explain("-f", path, "--from", path, code=2) == (
        f"ostler: {path}: no DeviceClaim is in it; write one, a DeviceClaim of {API_VERSION}; docs/pools.md has "
        "examples\n"
    )


def test_claim_that_has_its_devices(explain: Explain, tmp_path: Path) -> None:
    path = documents(tmp_path, having("x", "node-1-gpus", "gpu-0"))
    assert explain("-f", path, "--from", path, code=2) == (
        f"ostler: {path}: claim x has its devices already; remove status.allocations to ask again\n"
    )


def test_unknown_node_and_broken_claim(explain: Explain, tmp_path: Path) -> None:
    path = documents(tmp_path, *CLASSES, A100S)
    assert explain("--from", path, "--node", "node-9", needs=[{}], code=2) == (
        "ostler: no pool is on a node node-9; there are: node-1\n"
    )
    broken: Any = encode(claim({"requests": {"count": 3}}, name="trainer"))
    broken["spec"]["claims"][0]["limits"] = {"count": 2}
    asked = tmp_path / "broken.yaml"
    asked.write_text(yaml.safe_dump(broken))
    assert explain("-f", str(asked), "--from", path, code=2) == (
        f"ostler: {asked}, document 1, DeviceClaim trainer: spec.claims[0].limits.count is 2, below requests.count 3; "
        "raise it or remove it\n"
    )


def test_need_in_its_short_form(explain: Explain, tmp_path: Path) -> None:
    path = documents(tmp_path, class_(), A100S)
    printed = explain("1..4 gpu, memory>=128Gi total, same root", "--from", path, code=0)
    assert printed == (
        "claim need fits on node-1\n"
        "\n"
        "node-1\n"
        "  claims[0] (type gpu): gpu-0 (memory 80Gi), gpu-1 (memory 50Gi) of pool node-1-gpus\n"
    )
    assert explain("2 gpu same", "--from", path, code=2).startswith(
        'ostler: the need cannot be read: "same" at character 7: expected '
    )


def test_nothing_is_asked(explain: Explain) -> None:
    said = explain(code=2)
    assert said == f"ostler: nothing to explain: give a need, such as '{EXAMPLE}', or a DeviceClaim with -f FILE\n"
