"""The calls about one GPU, each allowed to fail alone.

``NvmlCalls`` collects what failed; ``read_gpu`` asks everything about a GPU that facts.GpuFacts has, except links and
ancestors. Read at every scan, since health and allocation depend on it: PCI address, UUID, memory, ECC mode, row
remapping, errors of SRAM, fabric, MIG mode and all MIG devices (a MIG UUID is made of the instance's numbers, so a new
instance of another size may carry the UUID of an old one). Kept for the session per (bus id, UUID): what is printed on
the board or in its firmware. A static call that failed for another reason than not being supported is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from node.inventory.facts import CallError, GpuFacts
from node.inventory.nvidia.nvml_binding import Binding, CallFailed, Handle
from node.values import replace

T = TypeVar("T")

SESSION_ENDED = frozenset({"UNINITIALIZED", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH"})
"""Errors that concern the driver and not the object of the call, whichever call returns them."""

GPU_GONE = frozenset({"GPU_IS_LOST", "RESET_REQUIRED"})
"""Errors after which a GPU gets no more calls: each may wait for a dead device."""

PERMANENT = frozenset({"NOT_SUPPORTED", "FUNCTION_NOT_FOUND"})
"""Errors that a call returns as long as the driver is loaded."""

NEVER = PERMANENT | {"NO_PERMISSION"}
"""The same, also for a process that lacks a right."""
_IDENTITY = ("nvmlDeviceGetPciInfo", "nvmlDeviceGetUUID")

Identity = tuple[str, str]


class NvmlCalls:
    """Calls NVML about one object: gives the value, or notes the error and gives None.

    After an error of GPU_GONE (``gone``) it reads only the identity. Errors of SESSION_ENDED pass as CallFailed.
    """

    def __init__(self, binding: Binding, gone: str | None = None) -> None:
        self.binding = binding
        self.gone = gone
        self._errors: set[tuple[str, str]] = set()

    @property
    def errors(self) -> tuple[CallError, ...]:
        """The failures, each pair of call and error once, sorted."""
        return tuple(CallError(call, error) for call, error in sorted(self._errors))

    def __call__(
        self, read: Callable[..., T], call: str, *arguments: object, expected: Collection[str] = ()
    ) -> T | None:
        """``read(call, *arguments)``, a method of the binding; errors in ``expected`` are an answer and not noted."""
        if self.gone is not None and call not in _IDENTITY:
            return None
        try:
            return read(call, *arguments)
        except CallFailed as failed:
            self.note(call, failed, expected)
            return None

    def note(self, call: str, failed: CallFailed, expected: Collection[str] = ()) -> None:
        """Note that a call failed; raises the failure again if the session has ended."""
        if failed.error in SESSION_ENDED:
            raise failed
        if failed.error in GPU_GONE:
            self.gone = failed.error
        if failed.error not in expected:
            self._errors.add((call, failed.error))

    def learn(self, other: NvmlCalls) -> None:
        """Note what other calls about the GPU or its MIG devices have found: whether it is lost."""
        self.gone = other.gone or self.gone

    def failed(self, call: str) -> bool:
        """Whether the call has failed with an error that was noted."""
        return any(name == call for name, _ in self._errors)


def read_gpu(calls: NvmlCalls, index: int, gpu: Handle, known: dict[Identity, GpuFacts]) -> GpuFacts:
    """The GPU without links, ancestors and MIG devices; ``known`` is the session's memory of static facts.

    ``error`` is set if it reported neither address nor UUID; ``with_errors`` adds its other errors.
    """
    binding = calls.binding
    bus_id = calls(binding.bus_id, "nvmlDeviceGetPciInfo", gpu)
    uuid = calls(binding.text, "nvmlDeviceGetUUID", gpu)
    facts = GpuFacts(index, bus_id=bus_id, uuid=uuid)
    if bus_id is None and uuid is None:
        return replace(facts, error=calls.gone or calls.errors[0].error)
    facts = _read_static(calls, facts, gpu, known)
    return _read_changing(calls, facts, gpu)


def _read_static(calls: NvmlCalls, facts: GpuFacts, gpu: Handle, known: dict[Identity, GpuFacts]) -> GpuFacts:
    identity = identity_of(facts)
    if identity is not None and identity in known:
        return replace(known[identity], index=facts.index)
    binding = calls.binding
    static = NvmlCalls(binding, calls.gone)
    capability = static(binding.numbers, "nvmlDeviceGetCudaComputeCapability", gpu)
    facts = replace(
        facts,
        name=static(binding.text, "nvmlDeviceGetName", gpu),
        minor=static(binding.number, "nvmlDeviceGetMinorNumber", gpu),
        serial=static(binding.text, "nvmlDeviceGetSerial", gpu),
        brand=static(binding.number, "nvmlDeviceGetBrand", gpu),
        architecture=static(binding.number, "nvmlDeviceGetArchitecture", gpu),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        module_id=static(binding.module_id, "nvmlDeviceGetModuleId", gpu),
        addressing_mode=static(binding.addressing_mode, "nvmlDeviceGetAddressingMode", gpu),
        virtualization_mode=static(binding.number, "nvmlDeviceGetVirtualizationMode", gpu),
        vbios_version=static(binding.text, "nvmlDeviceGetVbiosVersion", gpu),
        board_part_number=static(binding.text, "nvmlDeviceGetBoardPartNumber", gpu),
        errors=static.errors,
    )
    calls.learn(static)
    settled = static.gone is None and all(error.error in PERMANENT for error in static.errors)
    if identity is not None and settled:
        known[identity] = facts
    return facts


def _read_changing(calls: NvmlCalls, facts: GpuFacts, gpu: Handle) -> GpuFacts:
    binding = calls.binding
    memory = calls(binding.field, "nvmlDeviceGetMemoryInfo", "total", gpu)
    ecc = calls(binding.numbers, "nvmlDeviceGetEccMode", gpu)
    rows = calls(binding.numbers, "nvmlDeviceGetRemappedRows", gpu)
    mig = calls(binding.numbers, "nvmlDeviceGetMigMode", gpu)
    return replace(
        facts,
        memory_bytes=memory,
        ecc_mode=None if ecc is None else ecc[0],
        remapped_rows_pending=None if rows is None else bool(rows[2]),
        remapped_rows_failed=None if rows is None else bool(rows[3]),
        fabric=calls(binding.fabric, "nvmlDeviceGetGpuFabricInfoV", gpu),
        sram=calls(binding.sram, "nvmlDeviceGetSramEccErrorStatus", gpu, expected=PERMANENT),
        mig_mode=None if mig is None else mig[0],
        mig_pending=None if mig is None else mig[1],
        mig_max_devices=None if mig is None else calls(binding.number, "nvmlDeviceGetMaxMigDeviceCount", gpu),
    )


def identity_of(gpu: GpuFacts) -> Identity | None:
    """The identity of a GPU; None if it reported only half of it."""
    return None if gpu.bus_id is None or gpu.uuid is None else (gpu.bus_id, gpu.uuid)


def with_errors(gpu: GpuFacts, calls: NvmlCalls) -> GpuFacts:
    """The GPU with the errors of ``calls`` added to its own, sorted, each once."""
    errors = {(error.call, error.error) for error in (*gpu.errors, *calls.errors)}
    return replace(gpu, error=calls.gone or gpu.error, errors=tuple(CallError(*pair) for pair in sorted(errors)))
