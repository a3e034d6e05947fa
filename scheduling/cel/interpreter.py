"""From the checked tree to closures, once per expression.

The plan follows cel-go's planner with the options of Kubernetes, because the cost of an evaluation depends on it:
lists and maps of constants and conversions of constants are made beforehand and cost nothing, `in` over constants is a
set, selections are one attribute each (see `selections`), patterns that are constants are compiled beforehand.
What fails beforehand makes the expression as a whole unusable (`PlanFault`), not one evaluation.

Invariant: planning has no effect but the closures; they share no state between evaluations, so that one plan serves
all threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from scheduling.cel.calls import (
    binary,
    constant_call,
    differs,
    dispatched,
    equals,
    guarded,
    member_of,
    members_of,
    not_strictly_false,
    unary,
    variadic,
)
from scheduling.cel.checked import Checked, Reference
from scheduling.cel.constructs import Loop, fold, junction, new_list, new_map, new_message, optional_or
from scheduling.cel.environment import overloads, price_by_name
from scheduling.cel.frame import Frame, Run
from scheduling.cel.library.conversions import CONVERSIONS
from scheduling.cel.library.regex import MissingLibrary, has_patterns, with_pattern
from scheduling.cel.messages import CONSTANTS, NAMED
from scheduling.cel.relations import map_key
from scheduling.cel.selections import QUALIFIERS, PlannedAttribute, Qualifier, accumulator, evaluator, resolver, slot
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
    Uint,
    depth_of,
)
from scheduling.cel.types import DYN, TypeKind
from scheduling.cel.values import CelFault, Function, Stop, TypeValue, Unsigned, Value, refill

_FRAMES_PER_LEVEL = 4
"""Most Python frames that one level of a tree takes, in planning and in evaluation."""
_USUAL_DEPTH = 60


class PlanFault(Exception):
    """The expression cannot be planned. `node` is its place, 0 if that is unknown."""

    def __init__(self, message: str, node: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.node = node


@dataclass(frozen=True, slots=True)
class Constant:
    """A planned node that is a value."""

    value: Value


Node = Constant | PlannedAttribute | Run


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """A compiled expression: evaluate with `run(Frame(device, limit, slots))`."""

    run: Run
    slots: int


def evaluated(node: Node) -> Run:
    """The closure that evaluates a planned node and charges for it."""
    if isinstance(node, Constant):
        return _constant(node.value)
    if isinstance(node, PlannedAttribute):
        return evaluator(node)
    return node


def _constant(value: Value) -> Run:
    return lambda _frame: value


def values_of(planned: Sequence[Node]) -> list[Value]:
    """The values of the nodes if all of them are constants, else an empty list."""
    values: list[Value] = []
    for each in planned:
        if not isinstance(each, Constant):
            return []
        values.append(each.value)
    return values


def plan(checked: Checked) -> EvaluationPlan:
    """Compile a checked tree. Raises PlanFault."""
    depth = depth_of(checked.ast.root)
    if depth > _USUAL_DEPTH:
        # Calls of Python functions by Python functions use no C stack, so a higher limit is safe (which is why nothing
        # here recurses through a generator expression); it is never lowered, because evaluations in other threads may
        # depend on it. `parser.MAX_DEPTH` levels of the deepest macro make it some 10,000 at most.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 1_000 + depth * _FRAMES_PER_LEVEL))
    planner = _Planner(checked)
    try:
        run = evaluated(planner.node(checked.ast.root))
    except Stop as stop:
        raise PlanFault(stop.message) from stop
    finally:
        refill()
    return EvaluationPlan(run, planner.slots)


class _Planner:
    """Plans one tree. `scope` maps the names of loop variables to the closures that read them."""

    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.slots = 0
        self.scope: dict[str, Run] = {}
        self.special: dict[str, Callable[[Call], Node]] = {
            "_&&_": self._junction,
            "_||_": self._junction,
            "_?_:_": self._conditional,
            "_==_": self._equality,
            "_!=_": self._equality,
            "_[_]": partial(self._index, optional=False),
            "_?._": partial(self._index, optional=True),
            "_[?_]": partial(self._index, optional=True),
            "@not_strictly_false": lambda node: not_strictly_false(self.run(node.arguments[0])),
            "or": self._optional_or,
            "orValue": self._optional_or,
        }

    def node(self, node: Expr) -> Node:
        """Plan one node and all below it."""
        if isinstance(node, Literal):
            value = node.value
            return Constant(Unsigned(value.value) if isinstance(value, Uint) else value)
        if isinstance(node, Identifier):
            return self._name(node.id, node.name)
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, ListLiteral):
            return self._list(node)
        if isinstance(node, MapLiteral):
            return self._map(node)
        if isinstance(node, Comprehension):
            return self._comprehension(node)
        return self._message(node)

    def run(self, node: Expr) -> Run:
        """Plan a node for evaluation."""
        return evaluated(self.node(node))

    def _name(self, number: int, written: str) -> Node:
        reference = self.checked.references.get(number, Reference(written))
        name = reference.name or written
        if name in CONSTANTS and name not in self.scope:
            return Constant(CONSTANTS[name])
        known = self.checked.types.get(number, DYN)
        root = self.scope.get(name)
        if known.kind is TypeKind.TYPE:
            if name not in NAMED:
                raise PlanFault(f"reference to undefined type: {name}", number)
            return Constant(TypeValue(name))
        if root is not None:
            return PlannedAttribute(number, root)
        return PlannedAttribute(number, _device, variable=name)

    def _select(self, node: Select) -> Node:
        reference = self.checked.references.get(node.id)
        if reference is not None and reference.name:
            return self._name(node.id, reference.name)
        attribute = self._attribute(node.operand)
        attribute.add(Qualifier(node.id, node.field, test=node.test_only))
        attribute.test = node.test_only
        return attribute

    def _attribute(self, operand: Expr) -> PlannedAttribute:
        planned = self.node(operand)
        if isinstance(planned, PlannedAttribute) and not planned.test:
            return planned
        return PlannedAttribute(operand.id, evaluated(planned))

    def _index(self, node: Call, *, optional: bool) -> Node:
        operand, index = node.arguments
        attribute = self._attribute(operand)
        planned = self.node(index)
        if isinstance(planned, Constant):
            if type(planned.value) not in QUALIFIERS:
                raise PlanFault("invalid qualifier type", node.id)
            attribute.add(Qualifier(node.id, planned.value, optional=optional))
        elif isinstance(planned, PlannedAttribute):
            attribute.add(Qualifier(node.id, resolve=resolver(planned), optional=optional))
        else:
            attribute.add(Qualifier(node.id, resolve=planned, optional=optional))
        return attribute

    def _call(self, node: Call) -> Node:
        special = self.special.get(node.function)
        if special is not None and (node.target is None or node.function in ("or", "orValue")):
            return special(node)
        reference = self.checked.references.get(node.id, Reference())
        arguments = list(node.arguments)
        if node.target is not None and not reference.name:
            arguments.insert(0, node.target)
        return self._function(node, reference, [self.node(each) for each in arguments], arguments)

    def _function(self, node: Call, reference: Reference, planned: list[Node], written: Sequence[Expr]) -> Node:
        function = reference.name or node.function
        known = overloads()
        found = [(known[each], call) for each in reference.overloads if (call := known[each].call) is not None]
        if not found:
            raise PlanFault(f"no such overload: {function}", node.id)
        one = len(reference.overloads) == 1
        first, call = found[0]
        cost = (first.price if one else price_by_name(function)).cost
        all_at_once = first.variadic if one else not first.singleton
        prepared = self._with_pattern(function, planned, node)
        if prepared is not None:
            call, all_at_once = prepared, True
        elif one and not first.singleton:
            types = self.checked.types
            call = guarded(first, call, [types.get(each.id, DYN) for each in written])
        elif not first.singleton:
            call = dispatched(function, found, len(planned))
        if one and first.id == "in_list" and isinstance(planned[1], Constant):
            members = members_of(planned[1].value)
            if members is not None:
                return member_of(evaluated(planned[0]), members, map_key) if members else Constant(False)
        if constants := values_of(planned):
            if function in CONVERSIONS and len(planned) == 1:
                return _beforehand(node, call, constants)
            return constant_call(node.id, constants, call, cost)
        runs = [evaluated(each) for each in planned]
        if all_at_once or len(runs) not in (1, 2):
            return variadic(node.id, runs, call, cost)
        if len(runs) == 1:
            return unary(node.id, runs[0], call, cost)
        return binary(node.id, runs[0], runs[1], call, cost)

    @staticmethod
    def _with_pattern(function: str, planned: Sequence[Node], node: Call) -> Function | None:
        """The implementation of a call with a constant pattern, compiled now so that a wrong pattern is reported."""
        if not has_patterns(function) or len(planned) < 2:
            return None
        expression = planned[1]
        if not isinstance(expression, Constant) or type(expression.value) is not str:
            return None
        try:
            return with_pattern(function, expression.value)
        except CelFault as fault:
            raise PlanFault(fault.message, node.id) from fault
        except MissingLibrary:
            return None  # evaluation says so, with what to install

    def _list(self, node: ListLiteral) -> Node:
        planned = [self.node(each) for each in node.elements]
        optional = [position in node.optional for position in range(len(planned))]
        constants = values_of(planned)
        if len(constants) == len(planned) and not any(optional):
            return Constant(constants)
        return new_list(node.id, [(evaluated(each), maybe) for each, maybe in zip(planned, optional, strict=True)])

    def _map(self, node: MapLiteral) -> Node:
        keys = [self.node(each.key) for each in node.entries]
        values = [self.node(each.value) for each in node.entries]
        optional = [each.optional for each in node.entries]
        if not any(optional) and len(known := values_of([*keys, *values])) == 2 * len(keys):
            pairs = zip(known[: len(keys)], known[len(keys) :], strict=True)
            return Constant({map_key(key): value for key, value in pairs})
        runs = zip([evaluated(each) for each in keys], [evaluated(each) for each in values], optional, strict=True)
        return new_map(node.id, list(runs))

    def _message(self, node: MessageLiteral) -> Node:
        fields = [(each.name, self.run(each.value), each.optional) for each in node.fields]
        name = self.checked.references.get(node.id, Reference()).name or node.type_name.lstrip(".")
        return new_message(node.id, name, fields)

    def _comprehension(self, node: Comprehension) -> Node:
        initial = self.run(node.initial)
        over = self.run(node.range)
        collected, first = self.slots, self.slots + 1
        second = self.slots + 2 if node.variable2 else None
        self.slots += 3
        outside = dict(self.scope)
        read = accumulator(collected, initial)
        self.scope[node.accumulator] = read
        self.scope[node.variable] = slot(first)
        if second is not None:
            self.scope[node.variable2] = slot(second)
        if node.accumulator in (node.variable, node.variable2):
            self.scope[node.accumulator] = read
        condition = self.node(node.condition)
        step = self.run(node.step)
        self.scope = {**outside, node.accumulator: read}
        result = self.run(node.result)
        self.scope = outside
        certain = isinstance(condition, Constant) and condition.value is True
        return fold(Loop(node.id, over, first, second, collected, evaluated(condition), step, result, certain))

    def _junction(self, node: Call) -> Node:
        """Plans all operands of a chain of one operator together: nesting changes neither result nor order."""
        operands: list[Run] = []
        pending: list[Expr] = [node]
        while pending:
            each = pending.pop()
            if isinstance(each, Call) and each.function == node.function and each.target is None:
                pending.extend(reversed(each.arguments))
            else:
                operands.append(self.run(each))
        return junction(node.id, operands, decisive=node.function == "_||_")

    def _conditional(self, node: Call) -> Node:
        condition, truthy, falsy = [self.node(each) for each in node.arguments]
        branches = [
            each if isinstance(each, PlannedAttribute) else PlannedAttribute(part.id, evaluated(each))
            for each, part in zip((truthy, falsy), node.arguments[1:], strict=True)
        ]
        return PlannedAttribute(node.id, condition=evaluated(condition), branches=tuple(branches))

    def _equality(self, node: Call) -> Node:
        first, second = [self.run(each) for each in node.arguments]
        return equals(node.id, first, second) if node.function == "_==_" else differs(node.id, first, second)

    def _optional_or(self, node: Call) -> Node:
        assert node.target is not None
        first, second = self.run(node.target), self.run(node.arguments[0])
        return optional_or(node.id, first, second, unwrap=node.function == "orValue")


def _device(frame: Frame) -> Value:
    return frame.device.variable


def _beforehand(node: Call, call: Callable[..., Value], constants: list[Value]) -> Node:
    try:
        return Constant(call(*constants))
    except CelFault as fault:
        raise PlanFault(fault.message, node.id) from fault
