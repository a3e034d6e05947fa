"""One state file of a kubelet: whose it is, whether it is damaged, and what the kubelet's next start does with it.

Without the device manager's file a kubelet starts and has forgotten who has devices; with a damaged file of any other
manager it does not start. If the answer depends on the kubelet's version, each version gets its own. The parsers are
those of ``node.kubelet``, which the agent and the sandbox's kubelet use too. ``judge`` is pure; ``examine`` reads a
file that people name, which may be anything.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from google.protobuf.message import DecodeError

from node.kubelet import checkpoint, cpu_state, dra_state, memory_state
from node.kubelet.checkpoint import Checkpoint
from node.kubelet.cpu_state import CpuState, decode_cpus
from node.kubelet.dra_state import DraState
from node.kubelet.gojson import CorruptedStateError, KubeletStateError
from node.kubelet.memory_state import MemoryState, decode_memory
from node.kubelet.resource_state import READERS, ResourceStateError, Since
from node.opening import KUBELET_STATE, read_regular
from protos.deviceplugin.v1beta1 import api_pb2

KUBELETS: dict[Since, tuple[str, ...]] = {"1.34": ("1.34", "1.35"), "1.36": ("1.36",), "1.37": ("1.37",)}
"""Releases that read alike, by the first of them; later kubelets are expected to read as the last one."""
Content = Checkpoint | DraState | CpuState | MemoryState
DamageForm = Literal["checksum", "json", "version", "content"]
_ALL = tuple(release for since in READERS for release in KUBELETS[since])


class StateKind(StrEnum):
    """The manager of the kubelet that writes the file."""

    DEVICES = "device-manager"
    CLAIMS = "dra-manager"
    CPUS = "cpu-manager"
    MEMORY = "memory-manager"


FILE_NAMES = {
    StateKind.DEVICES: checkpoint.FILE_NAME,
    StateKind.CLAIMS: dra_state.FILE_NAME,
    StateKind.CPUS: cpu_state.FILE_NAME,
    StateKind.MEMORY: memory_state.FILE_NAME,
}
_MARKS = (
    (StateKind.DEVICES, (b'"poddeviceentries"', b'"registereddevices"')),
    (StateKind.CLAIMS, (b'\\"claiminfostatelist\\"',)),
    (StateKind.MEMORY, (b'"machinestate"',)),
    (StateKind.CPUS, (b'"defaultcpuset"',)),
)
"""Members by which a copy under another name is recognised, even if it is cut off; their case does not matter."""


class StateFileError(Exception):
    """A file that cannot be read, or is not one of the kubelet's state files; the message names it."""


class Start(StrEnum):
    """The behaviour of a kubelet that starts with the file."""

    RESTORES = "restores"
    FORGETS = "forgets"
    REFUSES = "refuses"


@dataclass(frozen=True, slots=True)
class NextStart:
    """The behaviour of kubelets of these releases, as ``text`` after their name; ``error``: why they refuse it."""

    kubelets: tuple[str, ...]
    start: Start
    text: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class StateDamage:
    """Why a file is not whole.

    ``expected``: the checksum that the data gives, ``found`` the file's; both 0 for other forms.
    """

    form: DamageForm
    text: str
    expected: int = 0
    found: int = 0


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file that was read.

    ``content``: what it says, even if its checksum does not fit; None if it cannot be read.
    """

    path: Path
    kind: StateKind
    content: Content | None
    damage: StateDamage | None
    starts: tuple[NextStart, ...]

    @property
    def fix(self) -> str:
        """The fix for damage; empty if there is none."""
        if self.damage is None:
            return ""
        when = "before such a kubelet starts, " if self.is_accepted and len(self.starts) > 1 else ""
        return f"{when}drain the node, stop the kubelet and remove {self.path}"

    @property
    def is_accepted(self) -> bool:
        """Whether some kubelet restores the file."""
        return any(start.start is Start.RESTORES for start in self.starts)

    @property
    def summary(self) -> str:
        """The verdict on one line."""
        verdict = "intact" if self.damage is None else f"damaged ({self.damage.form}): {self.damage.text}"
        return f"{self.path}: {self.kind} state, {verdict}"


def examine(path: Path, kind: StateKind | None = None) -> StateFile:
    """Read and judge the file at ``path``; ``kind``: the manager whose file it is, if that is known.

    Raises ``StateFileError``.
    """
    try:
        text = read_regular(path, KUBELET_STATE, links=True)
    except OSError as error:
        raise StateFileError(f"cannot read {path}: {error.strerror or error}") from error
    return judge(path, text, kind or recognised(path, text))


def recognised(path: Path, text: bytes) -> StateKind:
    """The manager whose file it is: by its name, else by its content; raises ``StateFileError``."""
    for kind, name in FILE_NAMES.items():
        if path.name == name:
            return kind
    lowered = text.lower()
    for kind, marks in _MARKS:
        if any(mark in lowered for mark in marks):
            return kind
    names = ", ".join(FILE_NAMES.values())
    raise StateFileError(
        f"{path} has neither the name nor the members of a state file of the kubelet ({names}); if it is one, name its "
        "manager with --kind"
    )


def files_of(path: Path) -> list[Path]:
    """The file, or those of the kubelet whose root folder it is; raises ``StateFileError`` for a folder without any."""
    if not path.is_dir():
        return [path]
    found = [path / ("device-plugins" if kind is StateKind.DEVICES else "") / name for kind, name in FILE_NAMES.items()]
    there = [each for each in found if os.path.lexists(each)]
    if not there:
        raise StateFileError(f"{path} has no state file of a kubelet ({', '.join(FILE_NAMES.values())})")
    return there


def judge(path: Path, text: bytes, kind: StateKind) -> StateFile:
    """The verdict on a text as the state of that manager."""
    if kind is StateKind.DEVICES:
        return _devices(path, text)
    if kind is StateKind.CLAIMS:
        return _claims(path, text)
    return _resources(path, text, kind)


def _devices(path: Path, text: bytes) -> StateFile:
    try:
        content = checkpoint.decode(text)
    except KubeletStateError as error:
        said = (
            f"starts without it ({error}): it does not know which containers have devices, and admits pods without "
            "their devices until the plugins have registered"
        )
        start = NextStart(_ALL, Start.FORGETS, said, str(error))
        return StateFile(path, StateKind.DEVICES, _shown(error), _damage(error), (start,))
    lost = [entry for entry in content.entries or () if answer_of(entry.response) is None]
    damage = None
    restores = "restores these allocations; a resource has no devices until its plugin has registered"
    if lost:
        first = lost[0]
        damage = StateDamage(
            "content",
            f"the plugin's answer for container {first.container} of pod {first.pod_uid} ({first.resource}) is not a "
            "ContainerAllocateResponse" + (f", nor are {len(lost) - 1} others" if len(lost) > 1 else ""),
        )
        restores += "; it drops entries with an unusable answer, and may give their devices to other pods"
    return StateFile(path, StateKind.DEVICES, content, damage, (NextStart(_ALL, Start.RESTORES, restores),))


def _shown(error: KubeletStateError) -> Checkpoint | DraState | None:
    content = error.content if isinstance(error, CorruptedStateError) else None
    return content if isinstance(content, Checkpoint | DraState) else None


def _damage(error: KubeletStateError) -> StateDamage:
    if isinstance(error, CorruptedStateError):
        return _sums(error.expected, error.found)
    text = str(error)
    if text.startswith("json: cannot unmarshal array") and text.endswith("type checkpoint.DevicesPerNUMA"):
        return StateDamage("version", f"it has the format of kubelets before 1.20 ({text})")
    return StateDamage("json", text)


def _sums(expected: int, found: int) -> StateDamage:
    return StateDamage("checksum", f"its data gives {expected}, the file says {found}", expected, found)


def answer_of(response: bytes | None) -> api_pb2.ContainerAllocateResponse | None:
    """A plugin's answer; None if the bytes are not one."""
    try:
        return api_pb2.ContainerAllocateResponse.FromString(response or b"")
    except DecodeError:
        return None


def _claims(path: Path, text: bytes) -> StateFile:
    try:
        content = dra_state.decode(text)
    except KubeletStateError as error:
        said = f"does not start: failed to get checkpoint {dra_state.FILE_NAME}: {error}"
        start = NextStart(_ALL, Start.REFUSES, said, str(error))
        return StateFile(path, StateKind.CLAIMS, _shown(error), _damage(error), (start,))
    said = "restores these claims, and asks the drivers to prepare each again when a pod needs it"
    return StateFile(path, StateKind.CLAIMS, content, None, (NextStart(_ALL, Start.RESTORES, said),))


def _resources(path: Path, text: bytes, kind: StateKind) -> StateFile:
    content: Content | None = None
    shown: object = None
    damage: StateDamage | None = None
    starts: list[NextStart] = []
    for since in READERS:
        try:
            content = decode_cpus(text, since) if kind is StateKind.CPUS else decode_memory(text, since)
        except ResourceStateError as error:
            damage = damage or _resource_damage(error)
            shown = shown or error.content
            said = f"does not start: could not restore state from checkpoint: {error}"
            starts.append(NextStart(KUBELETS[since], Start.REFUSES, said, str(error)))
            continue
        start, wrong = _accepted(content, KUBELETS[since])
        damage = damage or wrong
        starts.append(start)
    if content is None and isinstance(shown, CpuState | MemoryState):
        content = shown
    return StateFile(path, kind, content, damage, tuple(_merged(starts)))


def _resource_damage(error: ResourceStateError) -> StateDamage:
    if error.damage == "checksum":
        return _sums(error.expected, error.found)
    if error.damage == "version":
        return StateDamage("version", f"it has the format of kubelets before 1.18 ({error})")
    return StateDamage(error.damage, str(error))


def _accepted(content: CpuState | MemoryState, kubelets: tuple[str, ...]) -> tuple[NextStart, StateDamage | None]:
    if isinstance(content, CpuState):
        wrong, option = cpu_state.contradiction(content), "cpuManagerPolicy"
    else:
        wrong, option = memory_state.contradiction(content), "memoryManagerPolicy"
    if wrong:
        said = f"does not start, because {wrong}"
        return NextStart(kubelets, Start.REFUSES, said, wrong), StateDamage("content", wrong)
    said = f"restores this if its {option} is {content.policy!r}; with another one it does not start"
    return NextStart(kubelets, Start.RESTORES, said), None


def _merged(starts: Sequence[NextStart]) -> list[NextStart]:
    """Neighbours that say the same, as one."""
    merged: list[NextStart] = []
    for each in starts:
        before = merged[-1] if merged else None
        if before is not None and (before.start, before.text) == (each.start, each.text):
            merged[-1] = NextStart((*before.kubelets, *each.kubelets), each.start, each.text, each.error)
        else:
            merged.append(each)
    return merged


def start_words(start: NextStart) -> str:
    """The behaviour of the releases, for people: ``every kubelet restores ...``, ``kubelet 1.34 to 1.36 does not
    start``."""
    if start.kubelets == _ALL:
        if start.start is Start.REFUSES:
            return f"no kubelet starts{start.text.removeprefix('does not start')}"
        return f"every kubelet {start.text}"
    first, last = start.kubelets[0], start.kubelets[-1]
    releases = " or ".join(start.kubelets) if len(start.kubelets) < 3 else f"{first} to {last}"
    return f"kubelet {releases} {start.text}"
