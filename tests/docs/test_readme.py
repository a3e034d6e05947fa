"""The README's commands, configuration and links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ostler.cli.main import COMMANDS
from ostler.config.load import load_bytes
from ostler.config.topology import parse_overrides

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()


def test_the_example_configuration_is_usable() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    loaded = load_bytes("README.md", example.encode(), {}, {})
    resources = [rule.resource for rule in loaded.settings.rules]
    assert resources == ["nvidia.com/h100", "nvidia.com/mig-{profile}", "example.com/rdma"]


@pytest.mark.parametrize("document", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_examples_of_the_documents_are_usable(document: str) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / document).read_text(), re.DOTALL)
    for example in examples:
        if "kind: Topology" in example:
            assert parse_overrides(document, example.encode())
        else:
            assert load_bytes(document, example.encode(), {}, {}).settings.node_name == ""


@pytest.mark.parametrize("document", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_every_command_it_names_exists(document: str) -> None:
    named = re.findall(r"(?:^|/|`)ostler ([a-z]+)", (ROOT / document).read_text(), re.MULTILINE)
    assert set(named) <= set(COMMANDS)


def test_every_make_target_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z]+)", README)) <= targets


@pytest.mark.parametrize(
    "document", sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
)
def test_no_link_is_dead(document: str) -> None:
    path = ROOT / document
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []
