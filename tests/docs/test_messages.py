"""The messages that troubleshooting lists are said by the code, so that people who search for one find it."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.markdown import ROOT, text_of

PAGE = "docs/troubleshooting.md"
SOURCES = ("node", "plugin", "driver", "ostler", "kube")
FOREIGN = ("no healthy devices present", "hostPath type check failed", "DRA driver ostler.dev is not registered")
"""Said by the kubelet."""
WORDS = 4
"""Consecutive words of a message that must stand together in one text of the code; the others may be filled in."""


@cache
def said() -> str:
    """Every text of the code, one a line, its blanks made one and what is filled in left out."""
    texts = []
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values]
                    texts.append("".join(parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.append(node.value)
    return "\n".join(" ".join(text.split()) for text in texts)


def is_said(message: str) -> bool:
    """Whether each part of a message (``...`` divides them) has enough words together somewhere in the code."""
    for part in re.split(r"\s*\.\.\.\s*", re.sub(r" \([A-Z_]{4,}\)", " ... ", message)):
        words = part.split()
        runs = [" ".join(words[start : start + WORDS]) for start in range(max(1, len(words) - WORDS + 1))]
        if words and not any(run in said() for run in runs):
            return False
    return True


def listed(text: str) -> list[str]:
    """The messages in the first column of every table whose head says that they are messages."""
    found = []
    for table in re.findall(r"^\| (?:It says|The message has) \|.*\n\|[- |]+\n((?:\|.*\n)+)", text, re.MULTILINE):
        for row in table.splitlines():
            found += re.findall(r"`([^`]+)`", row.split(" | ")[0])
    return found


MESSAGES = listed(text_of(PAGE))


def test_there_are_messages() -> None:
    assert len(MESSAGES) > 20


@pytest.mark.parametrize("message", MESSAGES)
def test_a_listed_message_is_said(message: str) -> None:
    assert message in FOREIGN or is_said(message)


def test_a_message_that_nobody_says_is_seen() -> None:
    assert not is_said("the GPU is lost: it went for a walk in the woods ... and never came back")
