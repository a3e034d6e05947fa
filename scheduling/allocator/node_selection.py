"""Which nodes a slice or a device is for.

Four forms exist: a node's name, all nodes, a node selector, or the choice left to each device. A selector's terms are
alternatives, the requirements of one term must all hold; a term without requirements selects nothing. A selector that
cannot be read is an error even where another of its terms would match (k8s.io/component-helpers, nodeaffinity).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from scheduling.allocator.reading import Object
from scheduling.api.excerpts import shown
from scheduling.api.int64 import is_int64
from scheduling.api.labels import label_key_faults, label_value_faults

_GO_INTEGER = re.compile(r"[+-]?[0-9]+")

Labels = Mapping[str, str]
Matcher = Callable[[str, Labels], bool]
"""Whether a node of this name with these labels is selected."""


class SelectorFault(ValueError):
    """A node selector that cannot be read. `path` leads from the selector to the field at fault."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


def node_matcher(name: str, all_nodes: bool, selector: Object | None) -> Matcher | None:
    """The test for the three forms that select nodes; None if none of them is set. Raises `SelectorFault`.

    A name goes before all nodes, and that before a selector.
    """
    if name:
        return lambda node, _labels: node == name
    if all_nodes:
        return lambda _node, _labels: True
    if selector is None:
        return None
    return selector_matcher(selector)


def selector_matcher(selector: Object) -> Matcher:
    """The test of a v1 NodeSelector. Raises `SelectorFault`."""
    terms: list[tuple[Matcher, ...]] = []
    for index, term in enumerate(_list(selector, "nodeSelectorTerms", "nodeSelectorTerms")):
        path = f"nodeSelectorTerms[{index}]"
        if not isinstance(term, Mapping):
            raise SelectorFault(path, f"{shown(term)} is not an object")
        expressions = _list(term, "matchExpressions", f"{path}.matchExpressions")
        fields = _list(term, "matchFields", f"{path}.matchFields")
        tests = [_label_test(each, f"{path}.matchExpressions[{i}]") for i, each in enumerate(expressions)]
        tests += [_field_test(each, f"{path}.matchFields[{i}]") for i, each in enumerate(fields)]
        if tests:
            terms.append(tuple(tests))
    return lambda node, labels: any(all(test(node, labels) for test in tests) for tests in terms)


def _list(parent: Object, name: str, path: str) -> Sequence[object]:
    value = parent.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise SelectorFault(path, f"{shown(value)} is not a list")
    return value


def _requirement(requirement: object, path: str) -> tuple[str, str, tuple[str, ...]]:
    if not isinstance(requirement, Mapping):
        raise SelectorFault(path, f"{shown(requirement)} is not an object")
    key, operator = requirement.get("key", ""), requirement.get("operator", "")
    values = _list(requirement, "values", f"{path}.values")
    if not isinstance(key, str) or not isinstance(operator, str) or not all(isinstance(each, str) for each in values):
        raise SelectorFault(path, "key, operator and each of values must be a string")
    return key, operator, tuple(str(each) for each in values)


def _label_test(requirement: object, path: str) -> Matcher:
    key, operator, values = _requirement(requirement, path)
    _check_key(key, path)
    _check_values(operator, values, path)
    wanted = frozenset(values)
    match operator:
        case "In":
            return lambda _node, labels: key in labels and labels[key] in wanted
        case "NotIn":
            return lambda _node, labels: key not in labels or labels[key] not in wanted
        case "Exists":
            return lambda _node, labels: key in labels
        case "DoesNotExist":
            return lambda _node, labels: key not in labels
        case "Gt":
            bound = int(values[0])
            return lambda _node, labels: _above(labels.get(key), bound)
        case _:
            bound = int(values[0])
            return lambda _node, labels: _below(labels.get(key), bound)


def _field_test(requirement: object, path: str) -> Matcher:
    """Fields know one key, `metadata.name`; any other is an empty string on every node."""
    key, operator, values = _requirement(requirement, path)
    if operator not in ("In", "NotIn"):
        raise SelectorFault(f"{path}.operator", f'"{operator}" is not one of In, NotIn')
    if len(values) != 1:
        raise SelectorFault(f"{path}.values", f"{len(values)} values where there must be one")
    wanted, equal = values[0], operator == "In"
    # A node without a name has no fields, and then no test of fields applies.
    return lambda node, _labels: not node or ((node if key == "metadata.name" else "") == wanted) == equal


def _integer(text: str | None) -> int | None:
    if text is None or not _GO_INTEGER.fullmatch(text) or len(text) > 70:
        return None
    number = int(text)
    return number if is_int64(number) else None


def _above(text: str | None, bound: int) -> bool:
    number = _integer(text)
    return number is not None and number > bound


def _below(text: str | None, bound: int) -> bool:
    number = _integer(text)
    return number is not None and number < bound


def _check_values(operator: str, values: tuple[str, ...], path: str) -> None:
    match operator:
        case "In" | "NotIn":
            if not values:
                raise SelectorFault(f"{path}.values", f"{operator} needs at least one value")
        case "Exists" | "DoesNotExist":
            if values:
                raise SelectorFault(f"{path}.values", f"{operator} takes no values")
        case "Gt" | "Lt":
            if len(values) != 1 or _integer(values[0]) is None:
                raise SelectorFault(f"{path}.values", f"{operator} needs one whole number, not {list(values)}")
        case _:
            allowed = "In, NotIn, Exists, DoesNotExist, Gt, Lt"
            raise SelectorFault(f"{path}.operator", f'"{operator}" is not one of {allowed}')
    for index, value in enumerate(values):
        if label_value_faults(value):
            raise SelectorFault(f"{path}.values[{index}]", f'"{value}" is not a label value')


_key_faults = lru_cache(maxsize=1024)(label_key_faults)


def _check_key(key: str, path: str) -> None:
    if _key_faults(key):
        raise SelectorFault(f"{path}.key", f'"{key}" is not a label key')
