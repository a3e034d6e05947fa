"""Generates CEL expressions over the whole of the device environment, and devices for them.

Most expressions are of the right type and evaluate; some are wrong in types, in names or in syntax, because errors have
to be equal too. The same seed gives the same expressions.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from tests.judge.grammar import CALLS, LEAVES, ODD_LEAVES

Json = dict[str, Any]

PIECE = re.compile(r"\{([a-z_]+)\}|<([a-z]+):([a-z_]+)>")
DRIVER = "gpu.example.com"
LOOSE = re.compile(r"[-+*/%<>=!&|?:]| in ")
"""What may need parentheses inside something else."""

ODD = 0.03
"""How often a leaf is one that fails."""
COST_LIMITS = (0, 1, 3, 10, 100)


class Expressions:
    """A seeded source of expressions (``expression``), devices (``device``) and whole cases (``case``)."""

    def __init__(self, seed: int, number: int = 0, *, wrong_types: float = 0.01, broken: float = 0.02) -> None:
        """``seed`` and ``number`` name the sequence.

        ``wrong_types``: share of parts of another type than asked for; ``broken``: share of damaged texts.
        """
        self._random = random.Random(f"expressions {seed} {number}")
        self._wrong_types = wrong_types
        self._broken = broken

    def expression(self, kind: str = "bool", depth: int | None = None) -> str:
        """An expression of the type ``kind`` (a key of ``grammar.CALLS``); ``depth``: how deep calls may nest."""
        if depth is None:
            depth = self._random.choice((1, 1, 2, 2, 3, 4))
        text = self._of(kind, depth, [])
        if self._random.random() < self._broken:
            text = self._damaged(text)
        return text

    def case(self, name: str = "generated") -> Json:
        """A line as in the vectors' ``cel/*.jsonl``, without answers."""
        listed = self._random.random() < 0.5
        case: Json = {
            "name": name,
            "theme": "generated",
            "expr": self.expression(),
            "device": self.device(),
            "features": {"consumableCapacity": self._random.random() < 0.8, "listTypeAttributes": listed},
            "env": "new" if self._random.random() < 0.2 else "stored",
        }
        if self._random.random() < 0.05:
            case["cost_limit"] = self._random.choice(COST_LIMITS)
        return case

    def device(self) -> Json:
        """A device as in a slice, with its driver; what it lacks or has in another type varies."""
        device: Json = {"driver": DRIVER if self._random.random() < 0.97 else ""}
        attributes = self._chosen(_ATTRIBUTES, 0.85)
        if self._random.random() < 0.1:
            attributes.update(self._chosen(_ODD_ATTRIBUTES, 0.3))
        if attributes:
            device["attributes"] = attributes
        capacity = self._chosen(_CAPACITY, 0.85)
        if capacity:
            device["capacity"] = {name: {"value": value} for name, value in capacity.items()}
        if self._random.random() < 0.5:
            device["allowMultipleAllocations"] = self._random.random() < 0.7
        return device

    def _chosen(self, pool: Mapping[str, tuple[Any, ...]], share: float) -> Json:
        return {name: self._random.choice(values) for name, values in pool.items() if self._random.random() < share}

    def _of(self, kind: str, depth: int, scope: list[tuple[str, str]]) -> str:
        if kind == "any" or self._random.random() < self._wrong_types:
            kind = self._random.choice(list(CALLS))
        names = [name for name, of in scope if of == kind]
        if names and self._random.random() < 0.5:
            return self._random.choice(names)
        if depth <= 0 or not CALLS[kind] or self._random.random() < 0.1:
            leaves = ODD_LEAVES if kind in ODD_LEAVES and self._random.random() < ODD else LEAVES
            return self._random.choice(leaves[kind])
        return self._filled(self._random.choice(CALLS[kind]), depth - 1, scope)

    def _filled(self, template: str, depth: int, scope: list[tuple[str, str]]) -> str:
        """The template with all pieces replaced; its variables end with it, and ``b`` is not known in its own value."""
        inner, done, at = list(scope), list[str](), 0
        written: dict[str, str] = {}
        bound: list[tuple[str, str]] = []
        for piece in PIECE.finditer(template):
            done.append(template[at : piece.start()])
            at = piece.end()
            hole, variable, of = piece.groups()
            if variable:
                # Now and then the same name again: it hides the outer one.
                name = f"{variable}{len(scope)}" if self._random.random() < 0.9 else variable
                (bound if variable == "b" else inner).append((name, of))
                written[variable] = name
                done.append(name)
            elif hole in written and hole not in CALLS:
                done.append(written[hole])
            else:
                done.append(self._fitted(self._of(hole, depth, inner), template))
                inner += bound
                bound = []
        done.append(template[at:])
        return "".join(done)

    def _fitted(self, part: str, template: str) -> str:
        """Mostly with the parentheses it may need; without them what binds how is tested."""
        if LOOSE.search(part) and LOOSE.search(PIECE.sub("", template)) and self._random.random() < 0.8:
            return f"({part})"
        if LOOSE.search(part) and template.startswith("{") and "." in template and self._random.random() < 0.9:
            return f"({part})"
        return part

    def _damaged(self, text: str) -> str:
        at = self._random.randrange(len(text) + 1)
        match self._random.randrange(5):
            case 0:
                return text[:at] + text[at + 1 :]
            case 1:
                return text[:at]
            case 2:
                return text[:at] + self._random.choice("()[]{}'\"\\.,?:!&|=<>+-*/%@#$`~;^ \n\t0x_é") + text[at:]
            case 3:
                return (
                    text[:at]
                    + self._random.choice((" // c\n", " /* c */ ", "\u00a0", "\u200b", "..", "&&", "??"))
                    + text[at:]
                )
            case _:
                other = self._random.randrange(len(text) + 1)
                return text[: min(at, other)] + text[max(at, other) :]


_ATTRIBUTES: dict[str, tuple[Any, ...]] = {
    "model": ({"string": "H200-SXM"}, {"string": "A100"}, {"int": 7}),
    "slots": ({"int": 8}, {"int": 3}, {"int": 0}, {"string": "8"}),
    "ecc": ({"bool": True}, {"bool": False}),
    "fw": ({"version": "2.1.3-rc.1+build5"}, {"version": "1.0.0"}, {"string": "1.0.0"}),
    "gpu.example.com/drv": ({"version": "570.86.10"},),
    "ip": ({"string": "10.1.2.3"}, {"string": "x"}),
    "ints": ({"ints": [3, 1, 2]}, {"ints": [1]}, {"ints": [9223372036854775807, 1]}, {"ints": list(range(60))}),
    "strs": ({"strings": ["a", "b"]}, {"strings": ["b", "a", "b"]}, {"string": "a"}),
    "vers": ({"versions": ["1.0.0", "2.1.0"]}, {"version": "1.0.0"}),
    "bools": ({"bools": [True, False]}, {"bools": [True]}),
    "other.example.com/zone": ({"string": "a"}, {"string": "größe-日本"}),
    "empty": ({"string": ""},),
}
_ODD_ATTRIBUTES: dict[str, tuple[Any, ...]] = {
    "odd": ({}, {"version": "not-a-version"}, {"versions": ["1.0.0", "x"]}),
    "none": ({"ints": []}, {"strings": []}),
    "both": ({"int": 1, "string": "a"},),
}
_CAPACITY: dict[str, tuple[str, ...]] = {
    "memory": ("141Gi", "80Gi", "0"),
    "sm": ("132", "16"),
    "frac": ("1500m", "1"),
    "other.example.com/links": ("18",),
}
