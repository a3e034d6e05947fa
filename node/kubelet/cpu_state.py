"""The kubelet's record of who has which CPUs (``cpu_manager_state``): text to values, as each kubelet reads it.

Sets of CPUs are never spelled out, except those of whole pods, because two numbers can name more CPUs than memory
holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping

from node.kubelet import gojson
from node.kubelet.godump import mapped
from node.kubelet.gojson import FieldPlace, JsonError
from node.kubelet.gojson import Value as JsonTree
from node.kubelet.resource_state import ResourceManager, ResourceStateError, Since, StateForm, by_bytes, decode
from node.values import Value, replace, value

FILE_NAME = "cpu_manager_state"
"""Name of the file in the kubelet's root."""
MOST_CPUS = 65536
"""CPUs of a pod's own set beyond which a file is refused here: the checksum spells them out."""

Sets = Mapping[str, Mapping[str, str] | None] | None
"""CPUs by pod UID and container, as Linux writes lists of CPUs."""


@value
class CpuState(Value):
    """Who has which CPUs. ``default``: those that no container has alone.

    ``by_container_id``: containers' CPUs in the form of kubelets before 1.18. ``pods``: CPUs of whole pods;
    ``baselines``: those that containers had before a resize; both alpha or beta in 1.36 and 1.37.
    """

    policy: str = ""
    default: str = ""
    entries: Sets = None
    by_container_id: Mapping[str, str] | None = None
    pods: Mapping[str, str] | None = None
    baselines: Sets = None

    @property
    def containers(self) -> Iterator[tuple[str, str, str]]:
        """Pod UID, container and CPUs."""
        return ((pod, name, cpus) for pod, sets in (self.entries or {}).items() for name, cpus in (sets or {}).items())


def decode_cpus(text: bytes, since: Since) -> CpuState:
    """The file's content, as kubelets from release ``since`` on read it; raises ``ResourceStateError``."""
    state = decode(_CPU, text, since)
    if state.by_container_id:
        name = min(state.by_container_id)
        begin = (
            "error migrating v1 checkpoint state to v2 checkpoint state"
            if since == "1.34"
            else "failed to migrate checkpoint from v1 to v2"
        )
        # It would be found if the container still ran, which none of a kubelet before 1.18 does.
        raise ResourceStateError(
            f"{begin}: containerID '{name}' not found in initial containers list", "version", content=state
        )
    try:
        words = "default CPU set" if since == "1.37" else "default cpu set"
        _check_cpus(state.default, f"could not parse {words} {_quoted(state.default)}")
        for pod, name, cpus in state.containers:
            where = f"could not parse cpuset {_quoted(cpus)} for container {_quoted(name)} in pod {_quoted(pod)}"
            _check_cpus(cpus, where)
    except JsonError as error:
        raise ResourceStateError(str(error), "content", content=state) from error
    return state


def contradiction(state: CpuState) -> str:
    """Why a kubelet with the static policy refuses this content on every machine; empty where none does."""
    if state.policy != "static":
        return ""
    shared = cpu_ranges(state.default)
    if not shared:
        return "CPUs are assigned to containers, but none is left in the default set" if state.entries else ""
    for pod, name, cpus in state.containers:
        if any(begin <= last and first <= end for begin, end in cpu_ranges(cpus) for first, last in shared):
            return (
                f"container {name} of pod {pod} has the CPUs {cpus}, and some of them are in the default set "
                f"{state.default} too"
            )
    return ""


def cpu_ranges(text: str) -> tuple[tuple[int, int], ...]:
    """First and last CPU of every range of a list such as ``0-3,7``; raises ``JsonError`` with Go's own text."""
    found = []
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        begin = _number(first)
        end = _number(last) if dash else begin
        if begin > end:
            raise JsonError(f"invalid range {_quoted(part)} ({begin} > {end})")
        found.append((begin, end))
    return tuple(found)


def _number(text: str) -> int:
    if not re.fullmatch("[+-]?[0-9]+", text):
        raise JsonError(f"strconv.Atoi: parsing {_quoted(text)}: invalid syntax")
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 63:
        raise JsonError(f"strconv.Atoi: parsing {_quoted(text)}: value out of range")
    return int(text)


def _check_cpus(text: str, where: str) -> None:
    try:
        cpu_ranges(text)
    except JsonError as error:
        raise JsonError(f"{where}: {error}") from error


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _cpu_field(state: CpuState, form: StateForm, name: str, member: JsonTree, path: str) -> CpuState:
    def place(field: str, type_name: str) -> FieldPlace:
        return FieldPlace(f"{form.struct}.{path}{field}", type_name)

    match name:
        case "policyname" if member is not None:
            return replace(state, policy=gojson.string(member, place("policyName", "string")))
        case "defaultcpuset" if member is not None:
            return replace(state, default=gojson.string(member, place("defaultCpuSet", "string")))
        case "entries" if form.flat:
            return replace(state, by_container_id=_texts(member, place("entries", "map[string]string")))
        case "entries":
            return replace(state, entries=_sets(member, place("entries", "map[string]map[string]string")))
        case "podentries" if form.pods:
            pairs = gojson.members(member, place("podEntries", "state.PodCPUAssignments"))
            return replace(state, pods=None if pairs is None else {pod: _pod_cpus(each) for pod, each in pairs})
        case "baselines" if form.struct.endswith("Data"):
            pairs = gojson.members(member, place("baselines", "map[string]map[string]state.ContainerCPUs"))
            return replace(state, baselines={pod: _baselines(each, place) for pod, each in pairs or ()})
        case _:
            return state


def _texts(tree: JsonTree, place: FieldPlace) -> dict[str, str] | None:
    pairs = gojson.members(tree, place)
    return None if pairs is None else {name: gojson.string(each, place.of("string")) for name, each in pairs}


def _sets(tree: JsonTree, place: FieldPlace) -> Sets:
    pairs = gojson.members(tree, place)
    return None if pairs is None else {pod: _texts(each, place.of("map[string]string")) for pod, each in pairs}


def _pod_cpus(tree: JsonTree) -> str:
    cpus = ""
    for name, member in gojson.members(tree, FieldPlace("", "state.podEntryJSON")) or ():
        if name.casefold() == "cpuset":
            cpus = gojson.string(member, FieldPlace("podEntryJSON.cpuSet", "string"))
    _check_cpus(cpus, "failed to parse cpuset")
    if sum(end - begin + 1 for begin, end in cpu_ranges(cpus)) > MOST_CPUS:
        raise JsonError(f"the CPUs {cpus[:40]} of a pod are more than {MOST_CPUS}")
    return cpus


def _baselines(tree: JsonTree, place: Callable[[str, str], FieldPlace]) -> dict[str, str]:
    found = {}
    for container, each in gojson.members(tree, place("baselines", "map[string]state.ContainerCPUs")) or ():
        found[container] = ""
        for name, member in gojson.members(each, place("baselines", "state.ContainerCPUs")) or ():
            if name.casefold() == "baseline":
                found[container] = gojson.string(member, FieldPlace("ContainerCPUs.baselines.baseline", "string"))
    return found


def _dump_cpus(state: CpuState, form: StateForm, struct: str) -> str:
    if form.flat:
        flat = state.by_container_id
        entries = "(map[string]string)" + mapped(None if flat is None else by_bytes(flat.items()))
    else:
        sets = state.entries
        pairs = None if sets is None else ((pod, _dump_texts(texts)) for pod, texts in by_bytes(sets.items()))
        entries = "(map[string]map[string]string)" + mapped(pairs)
    pods = ""
    if form.pods:
        own = state.pods
        sets_of_pods = None if own is None else ((pod, _dump_pod_cpus(cpus)) for pod, cpus in by_bytes(own.items()))
        pods = f" PodEntries:(state.PodCPUAssignments){mapped(sets_of_pods)}"
    return (
        f"(*state.{struct}){{PolicyName:(string){state.policy} DefaultCPUSet:(string){state.default} "
        f"Entries:{entries}{pods} Checksum:(checksum.Checksum)0}}"
    )


def _dump_texts(texts: Mapping[str, str] | None) -> str:
    return mapped(None if texts is None else by_bytes(texts.items()))


def _dump_pod_cpus(cpus: str) -> str:
    numbers = sorted({number for begin, end in cpu_ranges(cpus) for number in range(begin, end + 1)})
    elements = mapped((str(number), "{}") for number in numbers)
    return f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}}){elements}}}}}"


def _is_flat(tree: JsonTree) -> bool:
    """Whether containers are named by their ids, as before 1.18."""
    for name, member in tree.pairs if isinstance(tree, gojson.Object) else ():
        if name.casefold() == "entries" and isinstance(member, gojson.Object) and member.pairs:
            return all(isinstance(each, str) and not isinstance(each, gojson.Number) for _, each in member.pairs)
    return False


def _names(version: str) -> tuple[str, ...]:
    """Structs under whose names the kubelet accepts a checksum."""
    return (f"CPUManagerCheckpoint{version}", "CPUManagerCheckpoint")


_CPU = ResourceManager(
    "cpu manager",
    "v4",
    "CPUManagerCheckpointV2",
    "CPUManagerCheckpoint",
    {
        "1.34": (
            StateForm("CPUManagerCheckpointV1", ("CPUManagerCheckpoint",), flat=True),
            StateForm("CPUManagerCheckpoint", ("CPUManagerCheckpoint",)),
        ),
        "1.36": (
            StateForm("CPUManagerCheckpointV2", _names("V2")),
            StateForm("CPUManagerCheckpointV1", ("CPUManagerCheckpoint",), flat=True),
        ),
        "1.37": (
            StateForm(
                "CPUManagerCheckpointV3", ("CPUManagerCheckpointV3", "CPUManagerCheckpoint"), lax=False, pods=True
            ),
            StateForm("CPUManagerCheckpointV2", _names("V2")),
        ),
    },
    lambda form: CpuState(
        entries=None if form.flat else {},
        by_container_id={} if form.flat else None,
        pods={} if form.pods else None,
    ),
    _cpu_field,
    _dump_cpus,
    _is_flat,
)
