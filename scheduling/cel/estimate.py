"""The worst-case cost of an expression: what Kubernetes' admission holds against the limit for selectors.

The numbers are those of cel-go's estimate (`checker.Cost`) with the API server's costs of functions and the sizes of
a device's parts, computed over the checked tree. They are worth nothing unless they are exactly the same, so the rules
follow that implementation where one would decide otherwise: only the largest number matters to callers, but the least
is carried along because sizes of results depend on both.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from scheduling.cel.checked import Checked
from scheduling.cel.environment import overloads
from scheduling.cel.library.prices import (
    EMPTY,
    LIST,
    MAP,
    MESSAGE,
    NOTHING,
    ONE,
    UNKNOWN,
    CallEstimate,
    CallOperand,
    CostRange,
    exactly,
    part_size,
)
from scheduling.cel.syntax import (
    Call,
    Comprehension,
    Expr,
    Identifier,
    ListLiteral,
    Literal,
    MapLiteral,
    MessageLiteral,
    Select,
    is_bind,
)
from scheduling.cel.types import DYN, Type, TypeKind
from scheduling.cel.unification import unwrapped

_SCALARS = frozenset(
    (TypeKind.BOOL, TypeKind.DOUBLE, TypeKind.DURATION, TypeKind.INT, TypeKind.TIMESTAMP, TypeKind.UINT)
)


def estimate(checked: Checked) -> int:
    """The largest cost that an evaluation can have, in units; 2**64 - 1 if it has no bound."""
    return _Estimate(checked).cost(checked.ast.root).most


_Steps = Generator[Expr, CostRange, CostRange]
"""The estimate of one node: it yields the nodes below, gets their costs, and returns its own."""


class _Path:
    """The path to a part of a variable, growing by one step at a time.

    cel-go's paths share memory: a step that is added to a path may overwrite the one that was added to it before.
    Sizes that are looked up later show it, so it is the same here: `slots` is that memory, `length` the part in use.
    """

    __slots__ = ("length", "slots")

    def __init__(self, slots: list[str], length: int) -> None:
        self.slots = slots
        self.length = length

    def then(self, step: str) -> _Path:
        """The path one step further."""
        slots = self.slots
        if self.length == len(slots):
            slots = [*slots, *[""] * max(1, len(slots))]
        slots[self.length] = step
        return _Path(slots, self.length + 1)

    def steps(self) -> tuple[str, ...]:
        """The steps that the path has now."""
        return tuple(self.slots[: self.length])


_NOWHERE = _Path([], 0)


@dataclass(frozen=True, slots=True)
class _Entries:
    """The sizes of the contents of a container: keys and values of a map, elements of a list."""

    kind: TypeKind
    keys: CostRange
    values: CostRange


@dataclass(frozen=True, slots=True)
class _Variable:
    """The known sizes of a variable of a comprehension."""

    path: _Path
    size: CostRange | None
    entries: _Entries | None = None


@dataclass(slots=True)
class _Estimate:
    """One walk over a tree: the known sizes of its nodes, by number, and the variables in scope."""

    checked: Checked
    paths: dict[int, _Path] = field(default_factory=dict)
    sizes: dict[int, CostRange] = field(default_factory=dict)
    entries: dict[int, _Entries] = field(default_factory=dict)
    variables: dict[str, list[_Variable]] = field(default_factory=dict)

    def cost(self, root: Expr) -> CostRange:
        """The cost of evaluating a node and all below it. Not recursive: macros nest deeper than Python calls."""
        pending: list[_Steps] = []
        answer = self._leaf(root)
        if answer is None:
            pending.append(self._steps(root))
        while pending:
            try:
                node = pending[-1].send(answer)  # type: ignore[arg-type]
            except StopIteration as done:
                pending.pop()
                answer = done.value
                continue
            answer = self._leaf(node)
            if answer is None:
                pending.append(self._steps(node))
        assert answer is not None
        return answer

    def _leaf(self, node: Expr) -> CostRange | None:
        """The cost of a literal or a name; None for nodes that have others below them."""
        if isinstance(node, Literal):
            return NOTHING
        name = self._qualified(node)
        if name is None:
            return None
        variable = self._variable(name)
        self.paths[node.id] = variable.path if variable is not None else _Path([name], 1)
        return ONE

    def _steps(self, node: Expr) -> _Steps:
        match node:
            case Select():
                return self._select(node)
            case Call() if node.function == "dyn":
                return self._dyn(node)
            case Call():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Comprehension():
                # "__result__" is what cel-go knows the folds of macros by, though a user may bind that name too.
                bound = is_bind(node) and node.accumulator != "__result__"
                return self._bind(node) if bound else self._comprehension(node)
        assert isinstance(node, MessageLiteral), node
        return self._message(node)

    def _qualified(self, node: Expr) -> str | None:
        """The name of a node that is a variable or a constant, also one written with dots."""
        reference = self.checked.references.get(node.id)
        if isinstance(node, Identifier):
            return reference.name if reference is not None and reference.name else node.name
        if isinstance(node, Select) and reference is not None and reference.name:
            return reference.name
        return None

    def _select(self, node: Select) -> _Steps:
        cost = yield node.operand
        if node.test_only:  # a presence test costs nothing in Kubernetes
            return cost
        if self._type(node.operand).kind in {TypeKind.MAP, TypeKind.STRUCT, TypeKind.PARAMETER}:
            cost += ONE
        self.paths[node.id] = self._path(node.operand).then(node.field)
        return cost

    def _list(self, node: ListLiteral) -> _Steps:
        cost, values = exactly(LIST), EMPTY if node.elements else NOTHING
        for element in node.elements:
            cost += yield element
            values |= self._size_or_unknown(element)
        self.entries[node.id] = _Entries(TypeKind.LIST, ONE, values)
        return cost

    def _map(self, node: MapLiteral) -> _Steps:
        cost = exactly(MAP)
        keys = values = EMPTY if node.entries else NOTHING
        for entry in node.entries:
            cost += (yield entry.key) + (yield entry.value)
            keys |= self._size_or_unknown(entry.key)
            values |= self._size_or_unknown(entry.value)
        self.entries[node.id] = _Entries(TypeKind.MAP, keys, values)
        return cost

    def _message(self, node: MessageLiteral) -> _Steps:
        cost = exactly(MESSAGE)
        for each in node.fields:
            cost += yield each.value
        return cost

    def _bind(self, node: Comprehension) -> _Steps:
        cost = (yield node.range) + (yield node.initial)
        self._push(node.accumulator, self._local(node.initial))
        cost += yield node.result
        self._pop(node.accumulator)
        self._copy(node, node.result)
        return cost

    def _comprehension(self, node: Comprehension) -> _Steps:
        cost = (yield node.range) + (yield node.initial)
        self._push(node.accumulator, self._local(node.initial))
        if node.variable2:
            self._push(node.variable, self._loop(node.range, value=False))
            self._push(node.variable2, self._loop(node.range, value=True))
        else:
            self._push(node.variable, self._loop(node.range, value=None))
        loop = yield node.condition
        loop = (yield node.step) + loop
        self._pop(node.variable)
        if node.variable2:
            self._pop(node.variable2)
        cost += yield node.result
        self._pop(node.accumulator)
        rounds = self._size_or_unknown(node.range)
        cost += rounds * loop
        if isinstance(node.initial, Literal):
            self._set_size(node, self._size(node.initial))
        elif isinstance(node.initial, ListLiteral | MapLiteral):
            self._set_size(node, rounds)
            self._set_entries(node, self._entries(node.step))
        return cost

    def _local(self, node: Expr) -> _Variable:
        """The variable that is bound to a node."""
        path, entries = self._path(node), self._entries(node)
        return _Variable(path, self._size(node), entries)

    def _loop(self, over: Expr, *, value: bool | None) -> _Variable:
        """A loop variable: of two the first (value=False) or second (True), or the only one (None)."""
        entries = self._entries(over)
        kind = entries.kind if entries is not None else self._type(over).kind
        is_list = kind is TypeKind.LIST
        takes_value = is_list if value is None else value
        size = None if entries is None else entries.values if takes_value else entries.keys
        step = ("@items" if is_list else "@values") if takes_value else ("@indices" if is_list else "@keys")
        return _Variable(self._path(over).then(step), size)

    def _dyn(self, node: Call) -> _Steps:
        cost = ONE + (yield node.arguments[0])
        self._copy(node, node.arguments[0])
        return cost

    def _call(self, node: Call) -> _Steps:
        reference = self.checked.references.get(node.id)
        before = NOTHING
        costs: list[CostRange] = []
        operands: list[CallOperand] = []
        for argument in node.arguments:
            costs.append((yield argument))
            before += costs[-1]
            operands.append(self._operand(argument))
        if reference is None or not reference.overloads:
            return NOTHING
        target_cost = NOTHING
        if node.target is not None and not reference.name:
            target_cost = yield node.target
            operands.insert(0, self._operand(node.target))
        worst, size = EMPTY, None
        for overload in reference.overloads:
            found = self._call_estimate(node, overload, operands, costs, before)
            worst |= found.cost
            if found.size is not None:
                size = found.size if size is None else size | found.size
            if overload in {"index_list", "index_map"}:
                entries = self._entries(node.arguments[0])
                size = None if entries is None else entries.values
                step = "@items" if overload == "index_list" else "@values"
                self.paths[node.id] = self._path(node.arguments[0]).then(step)
            if size is None:
                size = self._size(node)
        self._set_size(node, size)
        return target_cost + worst

    def _call_estimate(
        self, node: Call, overload: str, operands: list[CallOperand], costs: list[CostRange], before: CostRange
    ) -> CallEstimate:
        """The cost of one overload with its arguments (`costs`, `before` in sum), and the size of its result."""
        if overload in {"logical_and", "logical_or"}:
            return CallEstimate(CostRange(costs[0].least, before.most))
        if overload == "conditional":
            self._set_entries(node, _union(self._entries(node.arguments[1]), self._entries(node.arguments[2])))
            size = operands[1].known() | operands[2].known()
            return CallEstimate(costs[0] + (costs[1] | costs[2]), size)
        estimate = overloads()[overload].price.estimate
        found = CallEstimate(ONE) if estimate is None else estimate(operands)
        if overload in {"add_string", "add_bytes", "add_list"}:
            joined = _union(self._entries(node.arguments[0]), self._entries(node.arguments[1]))
            self._set_entries(node, joined)
        return CallEstimate(found.cost + before, found.size)

    def _operand(self, node: Expr) -> CallOperand:
        return CallOperand(node, self._type(node), self._path(node).steps(), self._size(node))

    def _type(self, node: Expr) -> Type:
        return self.checked.types.get(node.id, DYN)

    def _path(self, node: Expr) -> _Path:
        name = self._qualified(node)
        variable = None if name is None else self._variable(name)
        return variable.path if variable is not None else self.paths.get(node.id, _NOWHERE)

    def _size(self, node: Expr) -> CostRange | None:
        known = self.sizes.get(node.id) or _written_size(node)
        if known is not None:
            return known
        known = part_size(self._path(node).steps())
        if known is not None:
            self.sizes[node.id] = known
            return known
        if _is_scalar(self._type(node)):
            return ONE
        name = self._qualified(node)
        variable = None if name is None else self._variable(name)
        return None if variable is None else variable.size

    def _size_or_unknown(self, node: Expr) -> CostRange:
        return self._size(node) or UNKNOWN

    def _set_size(self, node: Expr, size: CostRange | None) -> None:
        if size is not None:
            self.sizes[node.id] = size

    def _entries(self, node: Expr) -> _Entries | None:
        known = self.entries.get(node.id)
        if known is not None:
            return known
        name = self._qualified(node)
        variable = None if name is None else self._variable(name)
        return None if variable is None else variable.entries

    def _set_entries(self, node: Expr, entries: _Entries | None) -> None:
        if entries is not None:
            self.entries[node.id] = entries

    def _copy(self, node: Expr, source: Expr) -> None:
        self._set_size(node, self._size(source))
        self._set_entries(node, self._entries(source))

    def _variable(self, name: str) -> _Variable | None:
        stack = self.variables.get(name)
        return stack[-1] if stack else None

    def _push(self, name: str, variable: _Variable) -> None:
        self.variables.setdefault(name, []).append(variable)

    def _pop(self, name: str) -> None:
        self.variables[name].pop()


def _union(left: _Entries | None, right: _Entries | None) -> _Entries | None:
    if left is None or right is None:
        return None
    return _Entries(left.kind, left.keys | right.keys, left.values | right.values)


def _is_scalar(of: Type) -> bool:
    inner, wrapped = unwrapped(of)
    while wrapped:
        inner, wrapped = unwrapped(inner)
    return inner.kind in _SCALARS


def _written_size(node: Expr) -> CostRange | None:
    """The size of a literal: characters, bytes, elements."""
    match node:
        case Literal(value=str() | bytes() as value):
            return exactly(len(value))
        case Literal():
            return ONE
        case ListLiteral():
            return exactly(len(node.elements))
        case MapLiteral():
            return exactly(len(node.entries))
    return None
