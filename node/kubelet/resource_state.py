"""The state files of the kubelet's CPU manager and memory manager, as every kubelet from 1.34 on reads them.

A kubelet that refuses one of the two does not start. Which forms it reads, in which order, and with which checksums
differs by its version, so a file that 1.37 accepts may stop 1.36 and the other way round: kubelets from 1.37 on write
the content twice, for themselves (``data``) and for older kubelets. Invariant: what a real kubelet refuses is refused
here, with its error. Only the policy is not compared, because a file does not say how its kubelet is configured.

``cpu_state.py`` and ``memory_state.py`` have the content of each. Rules and texts:
tests/vectors/kubelet/resource_managers.jsonl. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from node.kubelet import gojson
from node.kubelet.godump import as_bytes, fnv32
from node.kubelet.gojson import CorruptedStateError, FieldPlace, JsonError, KubeletStateError
from node.kubelet.gojson import Value as JsonTree

Since = Literal["1.34", "1.36", "1.37"]
READERS: Final[tuple[Since, ...]] = ("1.34", "1.36", "1.37")
"""First releases of kubelets that read these files alike, oldest first."""

Damage = Literal["checksum", "json", "version", "content"]


class ResourceStateError(KubeletStateError):
    """A file of one of these two managers that the kubelet refuses.

    ``damage``: of which kind. ``expected``: the checksum that the data gives, ``found`` the file's, for that kind.
    ``content``: what the file says anyway, for people alone.
    """

    def __init__(
        self,
        message: str,
        damage: Damage,
        *,
        expected: int = 0,
        found: int = 0,
        content: object = None,
    ) -> None:
        super().__init__(message)
        self.damage = damage
        self.expected = expected
        self.found = found
        self.content = content


_Item = TypeVar("_Item")


def by_bytes(pairs: Iterable[tuple[str, _Item]]) -> list[tuple[str, _Item]]:
    """Pairs in the order in which Go prints a map."""
    return sorted(pairs, key=lambda pair: as_bytes(pair[0]))


class StateForm(NamedTuple):
    """One form of a file: the Go struct that reads it, and how its checksum is made.

    ``hashed``: names of structs under which the checksum may have been made. ``lax``: a checksum of 0 fits everything.
    """

    struct: str
    hashed: tuple[str, ...]
    lax: bool = True
    pods: bool = False
    flat: bool = False


State = TypeVar("State")


class ResourceManager(NamedTuple, Generic[State]):
    """How the state of one manager is read. ``forms``: in the order in which a kubelet tries them."""

    name: str
    signed: str
    """The form with ``data``, as the kubelet calls it in errors."""
    legacy: str
    """The struct that the form with ``data`` contains for older kubelets."""
    latest: str
    forms: Mapping[Since, tuple[StateForm, ...]]
    empty: Callable[[StateForm], State]
    field: Callable[[State, StateForm, str, JsonTree, str], State]
    """The state with one more member of the file: form, the member's name and value, and the path to it."""
    dump: Callable[[State, StateForm, str], str]
    """The printed form of a state under the name of a struct."""
    is_older: Callable[[JsonTree], bool] = lambda _: False
    """Whether a file has a form that none of these kubelets reads."""


def decode(manager: ResourceManager[State], text: bytes, since: Since) -> State:
    """The content by the first form that fits; raises ``ResourceStateError`` with the error that the kubelet logs."""
    try:
        tree = gojson.parse(text)
    except JsonError as error:
        raise ResourceStateError(str(error), "json") from error
    refused: KubeletStateError = JsonError("")
    mismatch: CorruptedStateError | None = None
    if since == "1.37" and _has_data(tree):
        try:
            return _read_data(manager, tree)
        except CorruptedStateError as error:
            refused = mismatch = error
        except JsonError as error:
            refused = error
        message = f"could not load {manager.signed} checkpoint: {refused}"
    else:
        for form in manager.forms[since]:
            try:
                return _read_form(manager, tree, form)
            except CorruptedStateError as error:
                refused = error
                if mismatch is None or not (form.flat or form.pods):
                    mismatch = error  # By the form that kubelets write.
            except JsonError as error:
                refused = error
        message = str(refused)
    if mismatch is not None:
        raise ResourceStateError(
            message, "checksum", expected=mismatch.expected, found=mismatch.found, content=mismatch.content
        ) from refused
    raise ResourceStateError(message, "version" if manager.is_older(tree) else "json") from refused


def _read_form(manager: ResourceManager[State], tree: JsonTree, form: StateForm) -> State:
    state, found = manager.empty(form), 0
    for name, member in gojson.members(tree, FieldPlace("", f"state.{form.struct}")) or ():
        if name.casefold() == "checksum":
            found = gojson.unsigned(member, FieldPlace(f"{form.struct}.checksum", "checksum.Checksum"))
        else:
            state = manager.field(state, form, name.casefold(), member, "")
    if found == 0 and form.lax:
        return state
    sums = [fnv32(manager.dump(state, form, struct)) for struct in form.hashed]
    if found not in sums:
        raise CorruptedStateError(sums[-1], found, state)
    return state


def _read_data(manager: ResourceManager[State], tree: JsonTree) -> State:
    """The form of 1.37, whose content is a text (``data``) with a checksum of its own."""
    struct = f"{manager.latest}."
    outer, form = manager.forms["1.36"][0], manager.forms["1.37"][0]
    data, found = "", 0
    try:
        for name, member in gojson.members(tree, FieldPlace("", f"state.{manager.latest}")) or ():
            match name.casefold():
                case "data" if member is not None:
                    data = gojson.string(member, FieldPlace(f"{struct}data", "string"))
                case "datachecksum":
                    found = gojson.unsigned(member, FieldPlace(f"{struct}dataChecksum", "checksum.Checksum"))
                case "checksum":
                    gojson.unsigned(member, FieldPlace(f"{struct}{manager.legacy}.checksum", "checksum.Checksum"))
                case other:
                    manager.field(
                        manager.empty(outer), outer._replace(struct=manager.latest), other, member, f"{manager.legacy}."
                    )
    except JsonError as error:
        raise JsonError(f"failed to deserialize {manager.name} checkpoint: {error}") from error
    state, inner = manager.empty(form), form._replace(struct=f"{manager.latest}Data")
    try:
        for name, member in gojson.members(gojson.parse(data.encode()), FieldPlace("", f"state.{inner.struct}")) or ():
            state = manager.field(state, inner, name.casefold(), member, "")
    except JsonError as error:
        raise JsonError(f"failed to deserialize {manager.name} checkpoint data: {error}") from error
    expected = fnv32(f"(string){data}")
    if expected != found:
        raise CorruptedStateError(expected, found, state)
    return state


def _has_data(tree: JsonTree) -> bool:
    """Whether kubelet 1.37 takes the file for one of its own, and so reads no older form of it."""
    for name, member in tree.pairs if isinstance(tree, gojson.Object) else ():
        match name.casefold():
            case "data" if isinstance(member, str) and not isinstance(member, gojson.Number) and member:
                return True
            case "datachecksum" if isinstance(member, gojson.Number) and re.fullmatch("[0-9]+", member):
                if member.strip("0"):
                    return True
    return False
