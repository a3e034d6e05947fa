"""A public class name stands once in the product: whoever reads it knows which room it is from."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
ROOMS = ("kube", "node", "plugin", "driver", "scheduling", "sandbox", "ostler", "deploy", "bench")


def test_every_public_class_name_stands_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            for name in _CLASS.findall(file.read_text()):
                places[name].append(str(file.relative_to(ROOT)))
    assert places
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
