"""The chart's values as tables: values.yaml is where each is described, README.md only repeats it.

A comment that begins with ``# --`` right above a key describes it, over as many lines as it takes; a line ``## Title``
begins a table. Every key needs a description, its own or that of what it is in. Pure: text in, text out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import yaml

_TITLE = re.compile(r"## (.+)")
_KEY = re.compile(r"( *)([A-Za-z][A-Za-z0-9]*):(?: .*)?")
_LONGEST_DEFAULT = 60
"""Characters of a default value that a table shows; a longer one is in values.yaml."""

BEGIN, END = "<!-- values: made by 'python -m deploy.generate' -->", "<!-- end of values -->"


class Undescribed(Exception):
    """A value without a description."""

    def __init__(self, key: str) -> None:
        super().__init__(f"values.yaml: {key} has no description; write '# -- ...' above it")
        self.key = key


@dataclass(frozen=True, slots=True)
class DescribedValue:
    """One value: the title it stands under, its path with dots, and what it is for."""

    title: str
    key: str
    description: str


def described(text: str) -> tuple[DescribedValue, ...]:
    """The values that a values.yaml describes, in its order; raises ``Undescribed``."""
    found = list(_walk(text))
    known = {item.key for item in found}
    for key in _leaves(cast("dict[str, object]", yaml.safe_load(text)), known):
        raise Undescribed(key)
    return tuple(found)


def tables(text: str) -> str:
    """The tables of all values."""
    values = yaml.safe_load(text)
    lines: list[str] = []
    title = ""
    for item in described(text):
        if item.title != title:
            title = item.title
            lines += ["", f"### {title}", "", "| value | default | meaning |", "| --- | --- | --- |"]
        lines.append(f"| `{item.key}` | {_shown(_value_at(values, item.key))} | {_cell(item.description)} |")
    return "\n".join(lines[1:]) + "\n"


def with_tables(readme: str, values: str) -> str:
    """The README with its part between the marks made anew; raises ValueError without the marks."""
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md: the lines {BEGIN!r} and {END!r} are missing")
    return f"{head}{BEGIN}\n\n{tables(values)}\n{END}{tail}"


def _walk(text: str) -> Iterator[DescribedValue]:
    title, comment = "", ""
    path: list[str] = []
    for line in text.splitlines():
        if match := _TITLE.fullmatch(line):
            title = match[1]
        stripped = line.strip()
        if stripped.startswith("# -- "):
            comment = stripped.removeprefix("# -- ")
        elif stripped.startswith("# ") and comment:
            comment += f" {stripped.removeprefix('# ')}"
        elif match := _KEY.fullmatch(line):
            path = [*path[: len(match[1]) // 2], match[2]]
            if comment:
                yield DescribedValue(title, ".".join(path), comment)
            comment = ""
        else:
            comment = ""


def _leaves(values: dict[str, object], known: set[str], path: str = "") -> Iterator[str]:
    """Keys that neither they nor what they are in describe."""
    for name, value in values.items():
        key = f"{path}{name}"
        if key in known:
            continue
        if isinstance(value, dict) and value:
            yield from _leaves(value, known, f"{key}.")
        else:
            yield key


def _value_at(values: object, key: str) -> object:
    for name in key.split("."):
        values = cast("dict[str, object]", values)[name]
    return values


def _shown(value: object) -> str:
    if value == "":
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`{_cell(text)}`" if len(text) <= _LONGEST_DEFAULT else "see values.yaml"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
