"""Which type fits where another is wanted, and which types type parameters get on the way.

Inference is by unification as in Kubernetes' CEL: every use of a generic overload gets parameters of its own, a
parameter is bound to the first type that it meets and widened when a more general one follows. The bindings of a failed
attempt are undone, so trying one overload after the other leaves no trace.

Types nest at most `MAX_TYPE_DEPTH` deep, which bounds the recursion here (two frames for each level).

`resolve` keeps every overload that fits a call, in the order of declaration. The type of the call is that of the first;
it becomes `dyn` when another one that fits has a different result.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.cel.library.function import Overload
from scheduling.cel.types import DYN, ERROR, INT, Type, TypeKind, parameter

MAX_TYPE_DEPTH = 250

_NULLABLE = frozenset({TypeKind.OPAQUE, TypeKind.STRUCT, TypeKind.ANY, TypeKind.DURATION, TypeKind.TIMESTAMP})
_LOOSE = frozenset({TypeKind.DYN, TypeKind.ANY, TypeKind.ERROR})
_COMPOSITE = frozenset({TypeKind.OPAQUE, TypeKind.LIST, TypeKind.MAP, TypeKind.TYPE})


class TypeTooDeep(Exception):
    """A type nests deeper than `MAX_TYPE_DEPTH`."""


def is_dynamic(of: Type) -> bool:
    """Whether the type is unknown before the evaluation."""
    return of.kind is TypeKind.DYN or of.kind is TypeKind.ANY


def unwrapped(of: Type) -> tuple[Type, bool]:
    """The type inside an optional type and True, or the type itself and False."""
    if of.kind is TypeKind.OPAQUE and of.name == "optional_type":
        return of.parameters[0], True
    return of, False


def same(left: Type, right: Type) -> bool:
    """Equality of types, safe for deep ones; a wrapper equals what it wraps, as in cel-go."""
    waiting = [(left, right)]
    while waiting:
        one, other = waiting.pop()
        if one is other:
            continue
        if one.kind is not other.kind or one.name != other.name or len(one.parameters) != len(other.parameters):
            return False
        waiting.extend(zip(one.parameters, other.parameters, strict=True))
    return True


def more_general(one: Type, other: Type) -> Type:
    """The less specific of two types that unify."""
    return one if _is_general(one, other) else other


def _is_general(one: Type, other: Type) -> bool:
    if is_dynamic(one) or one.kind is TypeKind.PARAMETER:
        return True
    if is_dynamic(other) or other.kind is TypeKind.PARAMETER or one.kind is not other.kind:
        return False
    if one.kind is TypeKind.TYPE:
        return True
    if one.name != other.name or len(one.parameters) != len(other.parameters):
        return False
    for index, each in enumerate(one.parameters):  # noqa: SIM110 (a generator would be another frame for each level)
        if not _is_general(each, other.parameters[index]):
            return False
    return True


class Unifier:
    """The bindings of type parameters while one expression is checked."""

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._trail: list[tuple[str, Type | None]] = []
        self._made = 0
        self._measured: dict[int, tuple[Type, int, bool]] = {}  # by identity, which the entry keeps alive

    def measure(self, of: Type) -> tuple[int, bool]:
        """How deep a type nests and whether it is free of parameters. Raises `TypeTooDeep`."""
        if not of.parameters:
            return 0, of.kind is not TypeKind.PARAMETER
        known = self._measured.get(id(of))
        if known is not None:
            return known[1], known[2]
        depth, ground = 0, True
        for each in of.parameters:
            deeper, free = self.measure(each)
            depth = max(depth, deeper)
            ground = ground and free
        depth += 1
        if depth > MAX_TYPE_DEPTH:
            raise TypeTooDeep
        self._measured[id(of)] = (of, depth, ground)
        return depth, ground

    def fresh(self) -> Type:
        """A new type parameter."""
        self._made += 1
        return parameter(f"_var{self._made}")

    def instance(self, types: Sequence[Type], names: Sequence[str]) -> list[Type]:
        """The types with fresh parameters in place of the named ones."""
        replaced = {name: self.fresh() for name in names}
        return [_renamed(each, replaced) for each in types]

    def agree(self, one: Type, other: Type) -> bool:
        """Whether one type can stand where the other is; binds parameters if so."""
        return self.all_agree((one,), (other,))

    def all_agree(self, ones: Sequence[Type], others: Sequence[Type]) -> bool:
        """Whether types agree pair by pair; binds parameters only if all do."""
        if len(ones) != len(others):
            return False
        mark = len(self._trail)
        for index, each in enumerate(ones):
            if not self._agree(each, others[index]):
                self._undo(mark)
                return False
        return True

    def joined(self, before: Type | None, of: Type) -> Type:
        """The type of elements of both types. `validators` decides whether they may be mixed."""
        if before is None:
            return of
        return more_general(before, of) if self.agree(before, of) else DYN

    def resolved(self, of: Type, *, final: bool = False) -> Type:
        """The type with bound parameters replaced; `final`: unbound ones become `dyn`. Raises `TypeTooDeep`."""
        return self._resolved(of, final, 0)

    def _resolved(self, of: Type, final: bool, depth: int) -> Type:
        if depth > MAX_TYPE_DEPTH:
            raise TypeTooDeep
        while of.kind is TypeKind.PARAMETER:
            bound = self._bound.get(of.name)
            if bound is None:
                return DYN if final else of
            of = bound
        if not of.parameters or self.measure(of)[1]:
            return of
        parameters: list[Type] = []
        changed = False
        for each in of.parameters:
            replaced = self._resolved(each, final, depth + 1)
            changed = changed or replaced is not each
            parameters.append(replaced)
        return Type(of.kind, of.name, tuple(parameters)) if changed else of

    def _bind(self, name: str, to: Type) -> None:
        self._trail.append((name, self._bound.get(name)))
        self._bound[name] = to

    def _undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            name, before = self._trail.pop()
            if before is None:
                del self._bound[name]
            else:
                self._bound[name] = before

    def _agree(self, one: Type, other: Type) -> bool:
        if one is other and not one.parameters and one.kind is not TypeKind.PARAMETER:
            return True
        if other.kind is TypeKind.PARAMETER:
            fits, known = self._substitutes(one, other)
            if fits or known:
                return fits
        if one.kind is TypeKind.PARAMETER:
            return self._substitutes(other, one)[0]
        if one.kind in _LOOSE or other.kind in _LOOSE:
            return True
        if one.kind is TypeKind.NULL or other.kind is TypeKind.NULL:
            rest = other if one.kind is TypeKind.NULL else one
            return rest.nullable or rest.kind in _NULLABLE or rest.kind is TypeKind.NULL
        if one.kind is not other.kind:
            return False
        if one.kind is TypeKind.TYPE:
            return True
        if one.name != other.name or len(one.parameters) != len(other.parameters):
            return False
        for index, each in enumerate(one.parameters):  # noqa: SIM110 (see _is_general)
            if not self._agree(each, other.parameters[index]):
                return False
        return True

    def _substitutes(self, of: Type, place: Type) -> tuple[bool, bool]:
        """Whether a type can be bound to a parameter, and whether the parameter is bound already."""
        if of.kind is TypeKind.PARAMETER and of.name == place.name:
            return True, True
        bound = self._bound.get(place.name)
        if bound is not None:
            if same(of, bound):
                return True, True
            if not self._agree(of, bound):
                return False, True
            general = more_general(of, bound)
            if self._absent(place, general):
                self._bind(place.name, general)
            return True, True
        if self._absent(place, of):
            self._bind(place.name, of)
            return True, False
        return False, False

    def _absent(self, place: Type, within: Type) -> bool:
        """Whether a parameter does not occur in a type, or in what its parameters are bound to."""
        waiting = [within]
        while waiting:
            of = waiting.pop()
            if of.parameters and self.measure(of)[1]:
                continue
            if of.kind is TypeKind.PARAMETER:
                if of.name == place.name:
                    return False
                bound = self._bound.get(of.name)
                if bound is not None:
                    waiting.append(bound)
            elif of.kind in _COMPOSITE:
                waiting.extend(of.parameters)
        return True


def _renamed(of: Type, replaced: dict[str, Type]) -> Type:
    if of.kind is TypeKind.PARAMETER:
        return replaced.get(of.name, of)
    if not of.parameters:
        return of
    return Type(of.kind, of.name, tuple(_renamed(each, replaced) for each in of.parameters))


def resolve(
    unifier: Unifier, overloads: Sequence[Overload], given: Sequence[Type], *, method: bool
) -> tuple[Type, tuple[str, ...]] | None:
    """The type of a call and the identifiers of the overloads that fit the given types; None if no overload fits.

    For a method, the type of the target comes first. Binds parameters of the given types in the unifier.
    """
    result: Type | None = None
    fitting: list[str] = []
    for overload in overloads:
        if overload.method is not method or len(overload.arguments) != len(given):
            continue
        arguments: Sequence[Type] = overload.arguments
        returned = overload.result
        if overload.parameters:
            *arguments, returned = unifier.instance((*arguments, returned), overload.parameters)
        if not unifier.all_agree(given, arguments):
            continue
        fitting.append(overload.id)
        returned = unifier.resolved(returned)
        if result is None:
            result = returned
        elif not is_dynamic(result) and not same(returned, result):
            result = DYN
    return None if result is None else (result, tuple(fitting))


def loop_variables(over: Type, *, two: bool) -> tuple[Type, Type] | None:
    """The types of the variables of a fold over a range of that type; None if nothing can iterate over it.

    With one variable over a list, the second type is that of an error.
    """
    if over.kind is TypeKind.LIST:
        return (INT, over.parameters[0]) if two else (over.parameters[0], ERROR)
    if over.kind is TypeKind.MAP:
        key, value = over.parameters
        return key, value
    if over.kind in (TypeKind.DYN, TypeKind.ERROR, TypeKind.PARAMETER):
        return DYN, DYN
    return None
