"""The documents of the repository, taken apart: fenced blocks, code spans, links, anchors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("docs", "deploy", "examples", "systemd", "bench", "sandbox", "tests")
"""Folders that may hold documents; environments and caches are not ours."""

DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(file for folder in FOLDERS for file in (ROOT / folder).glob("**/*.md"))]
)
PAGES = [
    name
    for name in DOCUMENTS
    if name == "README.md" or name.startswith(("docs/", "deploy/", "examples/", "CONTRIBUTING"))
]
"""Documents for users: what they tell people to type is checked."""

_FENCE = re.compile(r"^( *)```+ *([^\n`]*)\n(.*?)^\1```+ *$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(<?([^)\s>]*)>?(?: \"[^\"]*\")?\)|^ *\[[^\]]+\]: *(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A fenced block: ``words`` stand behind its fence (``yaml file=values.yaml``), the first is its language."""

    document: str
    line: int
    words: tuple[str, ...]
    text: str

    @property
    def language(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def file(self) -> str:
        """The name of the file that the block is, empty for none."""
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), "")

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def text_of(document: str) -> str:
    return (ROOT / document).read_text()


def blocks(document: str) -> list[CodeBlock]:
    text = text_of(document)
    return [
        CodeBlock(
            document, text.count("\n", 0, found.start()) + 1, tuple(found[2].split()), _unindented(found[3], found[1])
        )
        for found in _FENCE.finditer(text)
    ]


def _unindented(text: str, indent: str) -> str:
    return "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))


def prose(document: str) -> str:
    """The text without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", _FENCE.sub("", text_of(document)), flags=re.DOTALL)


def spans(document: str) -> Iterator[str]:
    """What stands in the prose as code."""
    return (found[1].strip() for found in _SPAN.finditer(prose(document)))


def links(document: str) -> list[str]:
    """Where links and pictures go, as they are written."""
    return [found[1] or found[2] or "" for found in _LINK.finditer(_SPAN.sub("", prose(document)))]


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    made: dict[str, int] = {}
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        made[anchor] = made.get(anchor, -1) + 1
        if made[anchor]:
            made[f"{anchor}-{made[anchor]}"] = 0
    return set(made)
