"""Reading: variables, fields, indexes, presence tests and the choice of `?:`, which selections reach through.

cel-go reads `a.b[c].d` as one attribute with qualifiers, and so does this module, because the cost depends on it: one
unit for each qualifier that is applied and one for the attribute; none for an optional qualifier that finds nothing,
none for the attribute of a presence test, and none for an attribute that is a branch of `?:` or an index itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduling.cel.frame import UNSET, Frame, Run, charge, overdrawn
from scheduling.cel.relations import find
from scheduling.cel.types import INT_MAX, INT_MIN, UINT_MAX
from scheduling.cel.values import (
    NONE,
    CelFault,
    Optional,
    TooExpensive,
    Unsigned,
    Value,
    elements,
    growing,
    is_list,
    is_map,
    list_size,
    no_such_overload,
    type_name,
)

QUALIFIERS = (str, int, Unsigned, bool, float)
"""The types of values that can be keys of a selection."""


@dataclass(slots=True)
class Qualifier:
    """One step of a selection: a constant `key`, or `resolve` if it is computed."""

    node: int
    key: Value = None
    resolve: Run | None = None
    optional: bool = False
    test: bool = False


@dataclass(slots=True)
class PlannedAttribute:
    """A variable, or the result of another node, or a choice of two attributes; then qualifiers.

    `variable` is the name if the root is one of the environment's (`device`). `root` gives the value to start from.
    """

    node: int
    root: Run | None = None
    variable: str = ""
    condition: Run | None = None
    branches: tuple[PlannedAttribute, ...] = ()
    qualifiers: list[Qualifier] = field(default_factory=list)
    test: bool = False

    def add(self, qualifier: Qualifier) -> None:
        """Selects further, in a choice on both sides."""
        if self.branches:
            for each in self.branches:
                each.add(qualifier)
        else:
            self.qualifiers.append(qualifier)
        self.node = qualifier.node


def no_such_key(key: Value) -> CelFault:
    """The fault of a missing key, field or identifier."""
    return CelFault(f"no such key: {key}")


def _index(entries: Value, key: Value) -> tuple[bool, Value]:
    """Whether a list has the index, and the element. Raises CelFault for a key that cannot be an index."""
    kind = type(key)
    if kind is int:
        position: int = key  # type: ignore[assignment]
    elif kind is Unsigned and key <= INT_MAX:  # type: ignore[operator]
        position = int(key)  # type: ignore[call-overload]
    elif isinstance(key, float) and INT_MIN < key < INT_MAX and key == int(key):
        position = int(key)
    else:
        raise CelFault(f"unsupported index of type '{type_name(key)}' in list")
    if 0 <= position < list_size(entries):
        return True, elements(entries)[position]
    return False, None


def qualify(value: Value, key: Value) -> Value:
    """`value[key]`. Raises CelFault for a key that is missing."""
    if is_map(value):
        found, result = find(value, key)  # type: ignore[arg-type]
        if found:
            return result
    elif is_list(value):
        found, result = _index(value, key)
        if found:
            return result
        raise CelFault(f"index out of bounds: {key}")
    raise no_such_key(key)


def qualify_if_present(value: Value, key: Value) -> tuple[bool, Value]:
    """Whether `value[key]` exists, and its value; a value without entries has none."""
    if is_map(value):
        return find(value, key)  # type: ignore[arg-type]
    if is_list(value):
        return _index(value, key)
    return False, None


def _key(frame: Frame, qualifier: Qualifier) -> Value:
    if qualifier.resolve is None:
        return qualifier.key
    key = qualifier.resolve(frame)
    if type(key) not in QUALIFIERS:
        raise CelFault(f"invalid qualifier type: {type_name(key)}", qualifier.node)
    return key


def _step(frame: Frame, value: Value, qualifier: Qualifier) -> Value:
    try:
        key = _key(frame, qualifier)
        result = qualify_if_present(value, key)[0] if qualifier.test else qualify(value, key)
    except CelFault as fault:
        fault.node = fault.node or qualifier.node
        charge(frame, 1)
        raise
    charge(frame, 1)
    return result


def _optional_step(frame: Frame, value: Value, qualifier: Qualifier) -> tuple[bool, Value]:
    try:
        present, result = qualify_if_present(value, _key(frame, qualifier))
    except CelFault as fault:
        fault.node = fault.node or qualifier.node
        raise
    if present:
        charge(frame, 1)
    return present, result


def _apply(frame: Frame, value: Value, qualifiers: list[Qualifier]) -> Value:
    optional = False
    if type(value) is Optional:
        if not value.present:
            return value
        value = value.get()
        optional = True
    for each in qualifiers:
        optional = optional or each.optional
        if not optional:
            value = _step(frame, value, each)
            continue
        present, value = _optional_step(frame, value, each)
        if not present:
            return NONE
    return Optional(value) if optional else value


def resolver(attribute: PlannedAttribute) -> Run:
    """The closure that gives an attribute's value and charges for its qualifiers, not for the attribute."""
    if attribute.branches:
        return _choice(attribute)
    root = attribute.root
    assert root is not None
    qualifiers = attribute.qualifiers
    if not qualifiers:
        return root

    def run(frame: Frame) -> Value:
        return _apply(frame, root(frame), qualifiers)

    return run


def _choice(attribute: PlannedAttribute) -> Run:
    truthy, falsy = [resolver(each) for each in attribute.branches]
    condition = attribute.condition
    node = attribute.node
    assert condition is not None

    def run(frame: Frame) -> Value:
        value = condition(frame)
        if value is True:
            return truthy(frame)
        if value is False:
            return falsy(frame)
        fault = no_such_overload("_?_:_", value)
        fault.node = node
        raise fault

    return run


def evaluator(attribute: PlannedAttribute) -> Run:
    """The closure that gives an attribute's value and charges for all of it."""
    if attribute.test:
        return _presence(attribute)
    if attribute.branches:
        return _choice(attribute)
    return _device_entry(attribute) or _charged(resolver(attribute))


def _charged(resolve: Run) -> Run:
    """The same for one unit more, charged last: reading an accumulator may evaluate the value that it starts with."""

    def run(frame: Frame) -> Value:
        try:
            value = resolve(frame)
        except CelFault:
            charge(frame, 1)
            raise
        frame.cost += 1
        if frame.cost > frame.limit:
            raise TooExpensive
        return value

    return run


def _presence(attribute: PlannedAttribute) -> Run:
    """The closure of `has()`."""
    resolve = _discounted(resolver(attribute)) if attribute.branches else resolver(attribute)

    def run(frame: Frame) -> Value:
        value = resolve(frame)
        return value.present if type(value) is Optional else value

    return run


def _discounted(resolve: Run) -> Run:
    """The same for one unit less: for a presence test cel-go takes back a unit that it never charged for a choice.

    Its counter has no sign: if the evaluation has cost nothing yet, the cost then exceeds every limit.
    """

    def take_back(frame: Frame) -> None:
        frame.cost -= 1
        if frame.cost < 0:
            frame.cost = UINT_MAX
            raise TooExpensive

    def run(frame: Frame) -> Value:
        try:
            value = resolve(frame)
        except CelFault:
            take_back(frame)
            raise
        take_back(frame)
        return value

    return run


_MISSING = object()


def _device_entry(attribute: PlannedAttribute) -> Run | None:
    """`device.attributes[domain].id` and its like in one step: most selections of real selectors."""
    keys = [each.key for each in attribute.qualifiers]
    if attribute.variable != "device" or not all(type(each) is str for each in keys):
        return None
    if any(each.resolve is not None or each.optional or each.test for each in attribute.qualifiers):
        return None
    if len(keys) == 1 and keys[0] in ("driver", "allowMultipleAllocations"):
        return _device_field(keys[0])
    if len(keys) != 3 or keys[0] not in ("attributes", "capacity"):
        return None
    _, domain, identifier = keys
    node = attribute.node
    capacity = keys[0] == "capacity"

    def run(frame: Frame) -> Value:
        frame.cost += 4
        if frame.cost > frame.limit:
            raise overdrawn(frame)
        inner = (frame.device.capacity if capacity else frame.device.attributes).get(domain)
        if inner is not None:
            value: Value = inner.get(identifier, _MISSING)  # type: ignore[attr-defined]
            if value is not _MISSING:
                return value
        fault = no_such_key(identifier)
        fault.node = node
        raise fault

    return run


def _device_field(key: Value) -> Run:
    driver = key == "driver"

    def run(frame: Frame) -> Value:
        frame.cost += 2
        if frame.cost > frame.limit:
            raise overdrawn(frame)
        return frame.device.driver if driver else frame.device.multiple

    return run


def slot(position: int) -> Run:
    """A loop variable."""

    def run(frame: Frame) -> Value:
        return frame.slots[position]

    return run


def accumulator(position: int, initial: Run) -> Run:
    """The variable that a comprehension collects in, made when it is first read, as in cel-go; may hold a CelFault."""

    def run(frame: Frame) -> Value:
        value = frame.slots[position]
        if value is UNSET:
            try:
                value = growing(initial(frame))
            except CelFault as fault:
                value = fault
            frame.slots[position] = value
        if isinstance(value, CelFault):
            raise value.with_traceback(None)  # else it would grow with every round of a loop
        return value

    return run
