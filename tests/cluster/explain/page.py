"""The blocks of docs/explain.md that are recorded from a real cluster, read and written."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "explain.md"
SCHEDULER, OSTLER = "from=scheduler", "from=ostler"
"""What stands behind the fences of a reason's two blocks: the scheduler's words, a command of ours with its output."""
COMMAND = "$ ostler explain pod/train -n team\n"


def recorded(title: str, block: str) -> str:
    """The text of this block below a heading; raises ``LookupError`` where there is none."""
    return _block(PAGE.read_text(), title, block)[2]


def record(title: str, block: str, text: str) -> None:
    """Put another text into a block."""
    page = PAGE.read_text()
    before, after, _ = _block(page, title, block)
    PAGE.write_text(page[:before] + text + page[after:])


def titles() -> list[str]:
    """The headings of all reasons, in their order."""
    return re.findall(r"^### (.*)$", PAGE.read_text(), re.MULTILINE)


def _block(page: str, title: str, block: str) -> tuple[int, int, str]:
    """Beginning and end of a block's text, and the text."""
    heading = re.search(rf"^### {re.escape(title)}\n", page, re.MULTILINE)
    if heading is None:
        raise LookupError(f"{PAGE.name} has no heading {title!r}")
    following = re.compile(r"^##", re.MULTILINE).search(page, heading.end())
    end = following.start() if following else len(page)
    found = re.compile(rf"^```text {block}\n(.*?)^```$", re.MULTILINE | re.DOTALL).search(page, heading.end(), end)
    if found is None:
        raise LookupError(f"{PAGE.name} has no block {block} below {title!r}")
    return found.start(1), found.end(1), found[1]
