"""No link is dead: files and anchors exist, and addresses of other sites are addresses."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from tests.docs.markdown import DOCUMENTS, ROOT, anchors, links, text_of


def fault(document: str, link: str) -> str:
    """What is wrong with a link, empty for nothing."""
    if not link:
        return "goes nowhere"
    scheme = urlsplit(link).scheme
    if scheme in ("https", "mailto"):
        right = re.fullmatch(r"https://[a-z0-9.-]+\.[a-z]{2,}(:[0-9]+)?(/[^\s<>\"]*)?|mailto:[^@\s]+@[^@\s]+", link)
        return "" if right else "is no address"
    if scheme:
        return f"is {scheme}, and not https"
    name, _, anchor = link.partition("#")
    target = (ROOT / document).parent / name if name else ROOT / document
    if link.startswith("/"):
        return "is absolute"
    if not target.exists():
        return "names no file"
    if not target.resolve().is_relative_to(ROOT):
        return "leaves the repository"
    if anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
        return "names no heading there"
    return ""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_link_is_dead(document: str) -> None:
    faults = [(link, fault(document, link)) for link in links(document)]
    assert [found for found in faults if found[1]] == []


@pytest.mark.parametrize(
    ("link", "what"),
    [
        ("docs/no-such-page.md", "names no file"),
        ("docs/topology.md#no-such-heading", "names no heading there"),
        ("#no-such-heading", "names no heading there"),
        ("", "goes nowhere"),
        ("http://example.com", "is http, and not https"),
        ("https://exa mple", "is no address"),
        ("/docs/topology.md", "is absolute"),
        ("../outside", "names no file"),
        ("..", "leaves the repository"),
        ("docs/topology.md", ""),
        ("docs/topology.md#machines-whose-pcie-tree-does-not-tell", ""),
        ("https://keepachangelog.com/en/1.1.0/", ""),
    ],
)
def test_a_dead_link_is_seen(link: str, what: str) -> None:
    assert fault("README.md", link) == what


def test_anchors_are_those_of_the_headings() -> None:
    text = "# A page\n## `kubelet`\n## NVIDIA's format\n## Same\n## Same\n```sh\n# none\n```\n## A [link](b.md), too\n"
    assert anchors(text) == {"a-page", "kubelet", "nvidias-format", "same", "same-1", "a-link-too"}


def test_every_page_is_in_the_index() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/*.md")} - {"README.md"}
    listed = {link.partition("#")[0] for link in links("docs/README.md")}
    assert pages <= listed


def test_every_decision_is_in_its_index() -> None:
    decisions = {path.name for path in ROOT.glob("docs/decisions/[0-9]*.md")}
    assert decisions == set(re.findall(r"\((\d{4}-[^)]+)\)", text_of("docs/decisions/README.md")))


def test_every_alert_links_to_a_heading() -> None:
    rules = (ROOT / "deploy" / "alerts" / "ostler.rules.yaml").read_text()
    targets = re.findall(r"runbook_url: (\S+)", rules)
    assert targets
    assert [target for target in targets if fault("README.md", target)] == []
