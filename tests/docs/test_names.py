"""A public class name stands once in the product: whoever reads it knows which room it is from."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("kube", "node", "plugin", "driver", "scheduling", "sandbox", "ostler", "deploy", "bench")


def test_every_public_class_name_stands_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(file.relative_to(ROOT)))
    assert places
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
