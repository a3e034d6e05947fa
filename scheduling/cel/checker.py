"""Gives every node of a tree its type and every name its meaning, or reports the nodes that do not fit.

The rules are those of Kubernetes' CEL: what compiles there compiles here, with the same types and the same overloads in
the same order.

The walk is a list of steps instead of recursion (see `syntax`): a step handles a node, and puts the steps for the nodes
below it, and for the work after them, at the front. After an issue the checker continues with the type of an error,
which agrees with everything, so that one mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from scheduling.cel import advice
from scheduling.cel.checked import Checked, Reference
from scheduling.cel.environment import CelEnvironment
from scheduling.cel.errors import Issue, TypeFault
from scheduling.cel.library.function import Overload
from scheduling.cel.syntax import (
    Ast,
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
    children,
    qualified_name,
)
from scheduling.cel.types import (
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    Type,
    TypeKind,
    list_of,
    map_of,
    optional_of,
)
from scheduling.cel.unification import TypeTooDeep, Unifier, is_dynamic, loop_variables, resolve, unwrapped

_MOST_ISSUES = 20

_LITERALS: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}


def check(ast: Ast, environment: CelEnvironment) -> Checked:
    """The tree with its types. Raises `TypeFault` with every issue, at most twenty."""
    return _Checker(ast, environment).run()


class _TooManyIssues(Exception):
    """The checker has found as many issues as it reports."""


class _Checker:
    def __init__(self, ast: Ast, environment: CelEnvironment) -> None:
        self.ast = ast
        self.environment = environment
        self.unifier = Unifier()
        self.types: dict[int, Type] = {}
        self.references: dict[int, Reference] = {}
        self.scopes: list[Mapping[str, Type]] = []  # of the folds that are open, from the outside in
        self.issues: list[Issue] = []
        self.steps: list[tuple[Callable[..., None], Expr]] = []
        self.starts: dict[type, Callable[..., None]] = {
            Literal: self._literal,
            Identifier: self._identifier,
            Select: self._select,
            Call: self._call,
            ListLiteral: self._list,
            MapLiteral: self._map,
            MessageLiteral: self._message,
            Comprehension: self._comprehension,
        }

    def run(self) -> Checked:
        root = self.ast.root
        self.steps.append((self._start, root))
        try:
            while self.steps:
                step, node = self.steps.pop()
                step(node)
            if not self.issues:
                types = {number: self.unifier.resolved(of, final=True) for number, of in self.types.items()}
                return Checked(self.ast, types, self.references, types[root.id])
        except TypeTooDeep:
            self.issues.append(Issue(0, "the types of this expression are nested too deeply"))
        except _TooManyIssues:
            pass  # the first twenty are reported
        raise TypeFault(tuple(sorted(self.issues, key=attrgetter("offset"))))

    # --- steps, issues, types

    def _then(self, *steps: tuple[Callable[..., None], Expr]) -> None:
        """Put these steps at the front, in this order."""
        self.steps.extend(reversed(steps))

    def _after(self, nodes: Sequence[Expr], step: Callable[..., None], node: Expr) -> None:
        """Put the nodes at the front, and the step behind them."""
        self._then(*((self._start, each) for each in nodes), (step, node))

    def _report(self, number: int, message: str) -> None:
        self.issues.append(Issue(self.ast.offsets.get(number, 0), message))
        if len(self.issues) >= _MOST_ISSUES:
            raise _TooManyIssues

    def _wrong(self, node: Expr, message: str) -> None:
        """Report that the node has no type."""
        self.types[node.id] = ERROR
        self._report(node.id, message)

    def _set(self, node: Expr, of: Type) -> None:
        if of.parameters:
            self.unifier.measure(of)
        self.types[node.id] = of

    def _type(self, node: Expr) -> Type:
        return self.types[node.id]

    def _start(self, node: Expr) -> None:
        self.starts[type(node)](node)

    # --- names

    def _local(self, name: str) -> Type | None:
        """The type of a loop variable, searched from the inside out; a dot before the name is ignored."""
        name = name.removeprefix(".")
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def _literal(self, node: Literal) -> None:
        self.types[node.id] = _LITERALS[type(node.value)]

    def _identifier(self, node: Identifier) -> None:
        name = node.name
        local = self._local(name)
        if local is not None and not name.startswith("."):
            self.references[node.id] = Reference(name)
            self.types[node.id] = local
        elif not self._global(node, name, shadowed=local is not None):
            device = self.environment.messages[DEVICE.name]
            self._wrong(node, advice.unknown_name(name, self.environment.names, device))

    def _global(self, node: Expr, name: str, *, shadowed: bool) -> bool:
        """Make the node a reference to the variable or type of that name, if there is one."""
        name = name.removeprefix(".")
        found = self.environment.names.get(name)
        if found is None:
            return False
        self.references[node.id] = Reference(f".{name}" if shadowed else name)
        self._set(node, found)
        return True

    def _select(self, node: Select) -> None:
        name = qualified_name(node)
        if name is not None:
            first = name.partition(".")[0] if not name.startswith(".") else name.split(".")[1]
            local = self._local(first)
            if (local is None or name.startswith(".")) and self._global(node, name, shadowed=local is not None):
                return
        self._then((self._start, node.operand), (self._selected, node))

    def _selected(self, node: Select) -> None:
        found = self._field(node, node.operand, node.field, optional=False)
        self._set(node, BOOL if node.test_only else self.unifier.resolved(found))

    def _field(self, node: Expr, operand: Expr, name: str, *, optional: bool) -> Type:
        """The type of a field of a checked operand."""
        target, wrapped = unwrapped(self.unifier.resolved(self._type(operand)))
        result = ERROR
        if target.kind is TypeKind.MAP:
            result = target.parameters[1]
        elif target.kind is TypeKind.STRUCT:
            result = self._message_field(node.id, target, name)
        elif target.kind is TypeKind.PARAMETER:
            self.unifier.agree(DYN, target)
            result = DYN
        else:
            if target.kind is not TypeKind.ERROR and not is_dynamic(target):
                self._report(node.id, f"a value of type {advice.shown(target)} has no fields")
            result = DYN
        return optional_of(result) if wrapped or optional else result

    def _message_field(self, number: int, of: Type, name: str) -> Type:
        fields = self.environment.messages.get(of.name, {})
        found = fields.get(name)
        if found is None:
            self._report(number, advice.unknown_field(of, name, fields))
            return ERROR
        return found

    # --- calls

    def _call(self, node: Call) -> None:
        if node.function == "_?._" and node.target is None:
            self._then((self._start, node.arguments[0]), (self._optional_select, node))
            return
        self._after(node.arguments, self._called, node)

    def _optional_select(self, node: Call) -> None:
        operand, field = node.arguments
        assert isinstance(field, Literal)
        self.types[field.id] = STRING
        found = self._field(node, operand, str(field.value), optional=True)
        self._set(node, self.unifier.resolved(found))
        self.references[node.id] = Reference(overloads=("select_optional_field",))

    def _called(self, node: Call) -> None:
        """Decide whether the call is a function, one with a namespace, or a method. The arguments are checked."""
        functions = self.environment.functions
        if node.target is None:
            name = node.function.removeprefix(".")
            overloads = functions.get(name)
            if overloads is None:
                self._wrong(node, advice.unknown_function(node.function, functions, method=False))
                return
            self._resolve(node, name, overloads, None, "" if name == node.function else name)
            return
        prefix = qualified_name(node.target)
        if prefix is not None:
            name = f"{prefix}.{node.function}".removeprefix(".")
            overloads = functions.get(name)
            if overloads is not None:
                self._resolve(node, name, overloads, None, name)
                return
        self._then((self._start, node.target), (self._method, node))

    def _method(self, node: Call) -> None:
        overloads = self.environment.functions.get(node.function)
        if overloads is None:
            self._wrong(node, advice.unknown_function(node.function, self.environment.functions, method=True))
            return
        self._resolve(node, node.function, overloads, node.target, "")

    def _resolve(
        self, node: Call, name: str, overloads: tuple[Overload, ...], target: Expr | None, written: str
    ) -> None:
        """Find the overloads that fit. `written` is the name that the reference keeps."""
        method = target is not None
        if not method and name in ("_&&_", "_||_"):
            self._resolve_logical(node, overloads[0])
            return
        given = [self._type(each) for each in node.arguments]
        if target is not None:
            given.insert(0, self._type(target))
        found = resolve(self.unifier, overloads, given, method=method)
        if found is None:
            shown = [self.unifier.resolved(each, final=True) for each in given]
            self._wrong(node, advice.no_overload(name, shown, overloads, method=method))
            return
        result, fitting = found
        self._set(node, result)
        self.references[node.id] = Reference(written, fitting)

    def _resolve_logical(self, node: Call, overload: Overload) -> None:
        fits = True
        for each in node.arguments:
            if not self.unifier.agree(self._type(each), BOOL):
                fits = False
                symbol = node.function.strip("_")
                found = advice.shown(self.unifier.resolved(self._type(each), final=True))
                self._report(each.id, f"'{symbol}' joins conditions, but this is of type {found}")
        self.types[node.id] = BOOL if fits else ERROR
        if fits:
            self.references[node.id] = Reference(overloads=(overload.id,))

    # --- literals of lists, maps and messages

    def _list(self, node: ListLiteral) -> None:
        self._after(node.elements, self._listed, node)

    def _listed(self, node: ListLiteral) -> None:
        joined: Type | None = None
        for index, each in enumerate(node.elements):
            of = self._type(each)
            if index in node.optional:
                of = self._present(each, of)
            joined = self.unifier.joined(joined, of)
        self._set(node, list_of(self.unifier.fresh() if joined is None else joined))

    def _map(self, node: MapLiteral) -> None:
        self._after(children(node), self._mapped, node)

    def _mapped(self, node: MapLiteral) -> None:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self.unifier.joined(key, self._type(entry.key))
            of = self._type(entry.value)
            if entry.optional:
                of = self._present(entry.value, of)
            value = self.unifier.joined(value, of)
        if key is None or value is None:
            key, value = self.unifier.fresh(), self.unifier.fresh()
        self._set(node, map_of(key, value))

    def _present(self, node: Expr, of: Type) -> Type:
        """The type inside the optional value of an element that is written with a question mark."""
        inner, wrapped = unwrapped(of)
        if not wrapped and not is_dynamic(of):
            self._report(node.id, f"'?' needs an optional value, but this is of type {advice.shown(of)}")
        return inner

    def _message(self, node: MessageLiteral) -> None:
        name = node.type_name.removeprefix(".")
        found = self.environment.names.get(name)
        if found is None or name in self.environment.constants:
            self._wrong(node, f"there is no message type '{node.type_name}'")
            return
        self.references[node.id] = Reference(name)
        fields = self.environment.messages.get(name)
        if found.kind is not TypeKind.TYPE or fields is None:
            self._wrong(node, f"'{node.type_name}' is not a message type")
            return
        self._set(node, found.parameters[0])
        self._after(children(node), self._message_filled, node)

    def _message_filled(self, node: MessageLiteral) -> None:
        name = node.type_name.removeprefix(".")
        for field in node.fields:
            wanted = self._message_field(field.id, Type(TypeKind.STRUCT, name), field.name)
            of = self._type(field.value)
            if field.optional:
                of = self._present(field.value, of)
            if not self.unifier.agree(wanted, of):
                text = f"field '{field.name}' is of type {advice.shown(wanted)}, but {advice.shown(of)} is given"
                self._report(field.id, text)

    # --- comprehensions

    def _comprehension(self, node: Comprehension) -> None:
        self._then(
            (self._start, node.range),
            (self._start, node.initial),
            (self._enter, node),
            (self._start, node.condition),
            (self._condition_checked, node),
            (self._start, node.step),
            (self._step_checked, node),
            (self._start, node.result),
            (self._leave, node),
        )

    def _enter(self, node: Comprehension) -> None:
        over = self.unifier.resolved(self._type(node.range))
        found = loop_variables(over, two=bool(node.variable2))
        if found is None:
            self._report(node.range.id, advice.no_elements(over))
            found = ERROR, ERROR
        elif over.kind is TypeKind.PARAMETER:
            self.unifier.agree(DYN, over)
        first, second = found
        self.scopes.append({node.accumulator: self._type(node.initial)})
        self.scopes.append({node.variable: first, node.variable2: second} if node.variable2 else {node.variable: first})

    def _condition_checked(self, node: Comprehension) -> None:
        self._require(node.condition, BOOL)

    def _step_checked(self, node: Comprehension) -> None:
        self._require(node.step, self._type(node.initial))
        self.scopes.pop()

    def _leave(self, node: Comprehension) -> None:
        self.scopes.pop()
        self._set(node, self.unifier.resolved(self._type(node.result)))

    def _require(self, node: Expr, wanted: Type) -> None:
        if not self.unifier.agree(wanted, self._type(node)):
            shown = [advice.shown(self.unifier.resolved(each, final=True)) for each in (wanted, self._type(node))]
            self._report(node.id, f"this must be of type {shown[0]}, but is {shown[1]}")
