"""A GPU's own facts about its health, as one value.

The driver, the board or the library may not know a call: then the value is None and the call is not made again in the
session, so that a look at a simple board is cheap. After other errors the value is None only this time. What follows
from a GPU's fields is kept until one of them changes, which is hardly ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from node.inventory.facts import Fabric, SramErrors
from node.inventory.nvidia.health import NOT_SUPPORTED
from node.inventory.nvidia.nvml_binding import Binding, CallFailed, Handle
from node.inventory.nvidia.nvml_calls import GPU_GONE, SESSION_ENDED
from node.inventory.nvidia.nvml_fields import FieldQuery
from node.inventory.nvidia.signals.gpus import Gpu
from node.values import Value, quick, value

T = TypeVar("T")

RECOVERY_ACTION = 230
"""The field with the recovery action that the driver names (drivers from 570 on)."""

_TOTALS = {38: "CRC (flow control)", 45: "CRC (data)", 52: "replay", 59: "recovery", 160: "ECC"}
"""Fields that count the errors of all NVLinks of a GPU; boards since Hopper may lack them."""

_PER_LINK = {161: "replay", 162: "recovery", 163: "CRC"}
"""Fields that count the errors of the NVLink in their scope."""

_LINK_STATE = 165
"""The field that is not 0 if the NVLink in its scope is up; one call for all links. Older drivers lack it."""

_UNCORRECTED, _VOLATILE, _AGGREGATE = 1, 0, 1
_ABSENT = frozenset(
    {"NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "INVALID_ARGUMENT", "NO_PERMISSION", "ARGUMENT_VERSION_MISMATCH"}
)
_ECC = "nvmlDeviceGetTotalEccErrors"
_STATE = "nvmlDeviceGetNvLinkState"
_FABRIC = "nvmlDeviceGetGpuFabricInfoV"
_MEMORY = "nvmlDeviceGetMemoryInfo"
_FIELDS = "nvmlDeviceGetFieldValues"


Fields = tuple[tuple[int, int], ...]
"""Numbers and scopes of fields."""


@quick
@value
class Vitals(Value):
    """One look at one GPU.

    ``gone``: the error that means that it no longer answers; the rest is then None. ``ecc_volatile`` counts
    uncorrectable errors since the driver was loaded, ``ecc_aggregate`` in the life of the board. ``clocks`` is the mask
    of reasons for slower clocks; ``mig`` the MIG mode; ``links`` the NVLinks by whether they are up; ``link_errors``
    counters by kind. ``fabric`` is None where the GPU has none.
    """

    gone: str | None = None
    ecc_volatile: int | None = None
    ecc_aggregate: int | None = None
    rows_pending: bool | None = None
    rows_failed: bool | None = None
    pages_pending: bool | None = None
    recovery: int | None = None
    clocks: int | None = None
    mig: int | None = None
    fabric: Fabric | None = None
    sram: SramErrors | None = None
    links: tuple[tuple[int, bool], ...] = ()
    link_errors: tuple[tuple[str, int], ...] = ()


@value
class _Counted(Value):
    """The values of a GPU's fields, and what they say of its links."""

    found: Mapping[tuple[int, int], int]
    links: tuple[tuple[int, bool], ...]
    totals: tuple[tuple[str, int], ...]


class _GpuGone(Exception):
    """The GPU does not answer; each further question may wait for a dead device."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class VitalsReader:
    """Asks the GPUs of one session. Raises CallFailed when NVML is silent as a whole."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._links = range(binding.max_nvlinks)
        fields = (RECOVERY_ACTION, *_TOTALS)
        self._fields = (*[(field, 0) for field in fields], *[(_LINK_STATE, link) for link in self._links])
        self._absent: dict[int, set[object]] = {}
        self._queries: dict[tuple[int, Fields], FieldQuery] = {}
        """By the GPU's handle and the fields asked for, the query for those that the GPU has."""
        self._answers: dict[FieldQuery, tuple[Mapping[tuple[int, int], int | str], dict[tuple[int, int], int]]] = {}
        """The last answers, and the values among them."""
        self._counted: dict[int, _Counted] = {}
        self._has_memory = binding.question(_MEMORY, "c_nvmlMemory_t")
        self._aggregates: dict[int, tuple[int | None, int | None]] = {}

    def read(self, gpu: Gpu) -> Vitals:
        """Read the GPU."""
        try:
            return self._read(gpu.handle)
        except _GpuGone as gone:
            return Vitals(gone=gone.error)

    def _read(self, gpu: Handle) -> Vitals:
        binding = self._binding
        volatile = self._ask(gpu, binding.number, _ECC, _UNCORRECTED, _VOLATILE)
        rows = self._ask(gpu, binding.numbers, "nvmlDeviceGetRemappedRows")
        pages = None
        if rows is None:
            # Boards had this before row remapping.
            pages = self._ask(gpu, binding.number, "nvmlDeviceGetRetiredPagesPendingStatus")
        clocks = self._ask(gpu, binding.number, "nvmlDeviceGetCurrentClocksEventReasons")
        if clocks is None:
            clocks = self._ask(gpu, binding.number, "nvmlDeviceGetCurrentClocksThrottleReasons")
        mig = self._ask(gpu, binding.numbers, "nvmlDeviceGetMigMode")
        counted = self._count(gpu)
        links = counted.links or self._ask_links(gpu)
        return Vitals(
            ecc_volatile=volatile,
            ecc_aggregate=self._aggregate(gpu, volatile),
            rows_pending=None if rows is None else bool(rows[2]),
            rows_failed=None if rows is None else bool(rows[3]),
            pages_pending=None if pages is None else bool(pages),
            recovery=counted.found.get((RECOVERY_ACTION, 0)),
            clocks=clocks,
            mig=None if mig is None else mig[0],
            fabric=self._fabric(gpu),
            sram=self._ask(gpu, binding.sram, "nvmlDeviceGetSramEccErrorStatus"),
            links=links,
            link_errors=counted.totals or self._ask_link_errors(gpu, links),
        )

    def is_gone(self, gpu: Gpu) -> bool:
        """Whether the GPU no longer answers, by one call."""
        try:
            # A part whose memory is the processor's has no such figures, and counts errors.
            if self._ask(gpu.handle, self._has_memory, _MEMORY) is None:
                self._ask(gpu.handle, self._binding.number, _ECC, _UNCORRECTED, _VOLATILE)
        except _GpuGone:
            return True
        return False

    def _fabric(self, gpu: Handle) -> Fabric | None:
        fabric = self._ask(gpu, self._binding.fabric, _FABRIC)
        if fabric is None or fabric.state != NOT_SUPPORTED:
            return fabric
        self._absent[gpu.address].add((_FABRIC, ()))
        return None

    def _aggregate(self, gpu: Handle, volatile: int | None) -> int | None:
        """Asked when the other counter changed: both count the same errors."""
        known = self._aggregates.get(gpu.address)
        if known is None or known[0] != volatile:
            known = volatile, self._ask(gpu, self._binding.number, _ECC, _UNCORRECTED, _AGGREGATE)
            self._aggregates[gpu.address] = known
        return known[1]

    def _ask(self, gpu: Handle, read: Callable[..., T], call: str, *arguments: int) -> T | None:
        absent = self._absent.setdefault(gpu.address, set())
        if (call, arguments) in absent:
            return None
        try:
            return read(call, gpu, *arguments)
        except CallFailed as failed:
            if failed.error in SESSION_ENDED:
                raise
            if failed.error in GPU_GONE:
                raise _GpuGone(failed.error) from failed
            if failed.error in _ABSENT:
                absent.add((call, arguments))
            return None

    def _count(self, gpu: Handle) -> _Counted:
        found, known = self._read_fields(gpu, self._fields), self._counted.get(gpu.address)
        if known is None or known.found is not found:
            known = self._counted[gpu.address] = _Counted(
                found,
                tuple([(link, bool(state)) for (field, link), state in found.items() if field == _LINK_STATE]),
                tuple([(kind, found[field, 0]) for field, kind in _TOTALS.items() if (field, 0) in found]),
            )
        return known

    def _ask_links(self, gpu: Handle) -> tuple[tuple[int, bool], ...]:
        """Read the links that no field reports."""
        # Beyond a board's last link each number is refused once, and not asked again.
        states = [(link, self._ask(gpu, self._binding.number, _STATE, link)) for link in self._links]
        return tuple((link, bool(state)) for link, state in states if state is not None)

    def _read_fields(self, gpu: Handle, fields: Fields) -> dict[tuple[int, int], int]:
        """The fields that have a value, in one call; the others are left out, and not asked again if never had.

        The same object as the last time if there are any and they are as they were.
        """
        query = self._queries.get((gpu.address, fields)) or self._query(gpu, fields)
        if not query.fields:
            return {}
        answers = self._ask(gpu, lambda call, handle: self._binding.field_values(call, handle, query), _FIELDS)
        if answers is None:
            return {}
        before, found = self._answers.get(query, ({}, {}))
        if before is answers:
            return found
        found = {}
        absent = self._absent[gpu.address]
        known = len(absent)
        for field, answer in answers.items():
            if isinstance(answer, int):
                found[field] = answer
            elif answer in GPU_GONE:
                raise _GpuGone(answer)
            elif answer in _ABSENT:
                absent.add(field)
        if len(absent) > known:
            self._answers.pop(query, None)
            self._query(gpu, fields)
        else:
            self._answers[query] = answers, found
        return found

    def _query(self, gpu: Handle, fields: Fields) -> FieldQuery:
        """A new query for those of the fields that are not known to be absent.

        It replaces the one for the links that were up before: their sets may be many in the life of an agent.
        """
        for other in [each for each in self._queries if each[0] == gpu.address and each[1] != self._fields]:
            self._answers.pop(self._queries.pop(other), None)
        absent = self._absent.setdefault(gpu.address, set())
        query = self._queries[gpu.address, fields] = FieldQuery([field for field in fields if field not in absent])
        return query

    def _ask_link_errors(self, gpu: Handle, links: tuple[tuple[int, bool], ...]) -> tuple[tuple[str, int], ...]:
        """The errors of each link that is up, where no field counts those of all."""
        if not links:
            return ()
        wanted = tuple([(field, link) for link, up in links if up for field in _PER_LINK])
        found = self._read_fields(gpu, wanted)
        return tuple((f"{_PER_LINK[field]} of link {link}", count) for (field, link), count in found.items())
