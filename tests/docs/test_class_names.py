"""A public class name stands for one thing in the whole tree; helpers of a single test module are private."""

import ast
import re
from collections import defaultdict
from functools import cache
from itertools import chain
from pathlib import Path

from tests.docs.markdown import ROOT

FOLDERS = (
    "bench",
    "deploy",
    "driver",
    "examples",
    "kube",
    "node",
    "ostler",
    "plugin",
    "sandbox",
    "scheduling",
    "tests",
)
"""All but ``protos``, whose servicers have the names of their services."""


@cache
def classes(path: Path) -> frozenset[str]:
    """The classes of a module; parsing all of them takes seconds, so ask only about few."""
    return frozenset(each.name for each in ast.parse(path.read_text()).body if isinstance(each, ast.ClassDef))


def test_a_public_class_name_is_used_once() -> None:
    places: dict[str, set[Path]] = defaultdict(set)
    for path in chain.from_iterable((ROOT / folder).rglob("*.py") for folder in FOLDERS):
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE):
            places[name].add(path)
    assert len(places) > 1000
    several = {name: paths for name, paths in places.items() if len(paths) > 1}
    # A test may have a program with classes as a text.
    found = {
        name: sorted(str(path.relative_to(ROOT)) for path in paths if name in classes(path))
        for name, paths in several.items()
    }
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
