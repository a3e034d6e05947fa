"""Health of NVIDIA GPUs and MIG devices, as it follows from one scan.

Pure. A question that a healthy GPU cannot answer (NOT_SUPPORTED and the like) is no fault. A failed call about a pair
of GPUs never counts against one of them, since the other may be the cause. Reasons are sentences for people, with
NVML's own error name at the end for those who search for it. The inventory loop stamps ``since``.

The NVLink fabric's numbers are those of NVML's fabric information: a state of registration, the status with which it
ended, and from newer drivers a mask of health with a small field for each condition, which is 0 where the board lacks
it. A GPU outside its fabric still computes, so only failing routes make it unhealthy: jobs over several GPUs would fail
while they run. A clique promises peers, so the GPU is in one only while nothing but less bandwidth speaks against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from node.health.policy import APART, NARROW, UNREACHABLE
from node.health.signal import Condition, Trouble
from node.health.state import Health, HealthState, Recovery
from node.inventory.facts import CallError, Fabric, GpuFacts, MigFacts, NvmlFacts
from node.inventory.nvidia.location import NOT_LISTED, LocatedGpu

QUIESCED = "QUIESCED"
"""Not an error of NVML: the driver is quiesced because somebody is replacing it."""
DRIVER_UNREACHABLE = "DRIVER_UNREACHABLE"
"""Not an error of NVML, which says DRIVER_NOT_LOADED: the module is there, its device files cannot be opened."""

SRAM_EXCEEDED = (
    "its SRAM has more uncorrectable errors than NVIDIA allows; run NVIDIA's field diagnostics, since the GPU may have"
    " to be replaced"
)

WAITING_STATUSES = frozenset({"LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED", DRIVER_UNREACHABLE, QUIESCED})
"""Statuses of NVML on a node without a driver (yet)."""

_SILENCES = {
    QUIESCED: "the driver is left alone until 'ostler resume'",
    "LIBRARY_NOT_FOUND": "the driver's library libnvidia-ml.so.1 was not found",
    "DRIVER_NOT_LOADED": "the kernel module nvidia is not loaded",
    DRIVER_UNREACHABLE: "the kernel module nvidia is loaded, but its device files are not there or cannot be opened",
    "LIB_RM_VERSION_MISMATCH": "the driver's library and its kernel module differ in version, as during an upgrade; "
    "reload the module or reboot the node",
    "NO_PERMISSION": "the agent may not talk to the driver; it must run as root with access to /dev/nvidiactl",
    "TIMEOUT": "the driver did not answer in time",
}

_FAULTS = {
    "GPU_IS_LOST": ("the GPU is lost: it fell off the PCI bus or no longer answers the driver", Recovery.RESET),
    "RESET_REQUIRED": ("the GPU must be reset before it can be used again", Recovery.RESET),
    NOT_LISTED: (
        "the GPU is lost: the driver is bound to it on the PCI bus, but NVML does not list it",
        Recovery.RESET,
    ),
    "INSUFFICIENT_POWER": ("the GPU gets too little power; check its power cables", Recovery.REPLACE),
    "CORRUPTED_INFOROM": ("the GPU's infoROM is corrupted", Recovery.REPLACE),
    "IRQ_ISSUE": ("the driver gets no interrupts from the GPU", Recovery.RESET),
    "NO_PERMISSION": ("the agent may not talk to the GPU; it must run as root", Recovery.AUTOMATIC),
    "TIMEOUT": ("the GPU did not answer in time", Recovery.AUTOMATIC),
}

_FATAL = ("GPU_IS_LOST", "RESET_REQUIRED")

_CAUSES = {"GPU_IS_LOST": Trouble.LOST, NOT_LISTED: Trouble.LOST, "RESET_REQUIRED": Trouble.RECOVERY}

_NO_FAULT = frozenset(
    {
        "ALREADY_INITIALIZED",
        "ARGUMENT_VERSION_MISMATCH",
        "DEPRECATED",
        "FUNCTION_NOT_FOUND",
        "INSUFFICIENT_SIZE",
        "INVALID_ARGUMENT",
        "IN_USE",
        "NOT_FOUND",
        "NOT_READY",
        "NOT_SUPPORTED",
        "NO_DATA",
        "NO_PERMISSION",
    }
)

_ABOUT_PAIRS = ("Topology", "P2P", "NvLink")


def silence(nvml: NvmlFacts) -> str:
    """Says in one sentence why NVML answers for no GPU; empty when it answers."""
    status = nvml.status
    if status == "ok":
        # Without the count an empty list means nothing: no GPU may be called lost because of it.
        status = next((error.error for error in nvml.errors if error.call.startswith("nvmlDeviceGetCount")), "ok")
    if status == "ok":
        return ""
    sentence = _SILENCES.get(status, "the driver does not answer")
    detail = f": {nvml.detail}" if nvml.detail else ""
    return f"{sentence} ({status}){detail}"


def fatal_error(facts: GpuFacts) -> str | None:
    """The error that makes all other facts about a GPU meaningless; None when there is none.

    If a GPU is lost while it is being read, the next calls show it, also those for its MIG devices.
    """
    if facts.error is not None:
        return facts.error
    errors = (*_own(facts.errors), *(error for mig in facts.mig_devices for error in mig.errors))
    return next((error.error for error in errors if error.error in _FATAL), None)


def gpu_health(gpu: LocatedGpu, silent: str, node_missing: str) -> Health:
    """Health of a GPU, the worst fault first.

    ``silent``: why NVML does not answer, or empty. ``node_missing``: path of its device node where that does not exist.
    """
    facts = gpu.facts
    if silent:
        cause = Trouble.PERSON if silent.startswith(_SILENCES[QUIESCED]) else Trouble.SILENT
        return _health(HealthState.UNKNOWN, f"its state is unknown: {silent}", Recovery.AUTOMATIC, cause)
    fatal = fatal_error(facts)
    if fatal is not None:
        return _fault(HealthState.UNHEALTHY, fatal, "the driver cannot open the GPU")
    if gpu.uuid is None:
        reason = "its UUID cannot be read and is not remembered, so no container can get it"
        return _health(HealthState.UNHEALTHY, reason, Recovery.AUTOMATIC)
    return _rows(facts) or _fabric(facts) or _notes(gpu, _own(facts.errors), node_missing)


def mig_health(mig: MigFacts, parent_name: str, parent: Health) -> Health:
    """Health of a MIG device: its GPU's if that is not healthy, else its own."""
    if parent.state is not HealthState.HEALTHY and not parent.usable:
        return _health(parent.state, f"its GPU {parent_name}: {parent.reason}", parent.recovery, parent.cause)
    if mig.uuid is None:
        reason = "its UUID cannot be read, so no container can get it"
        return _health(HealthState.UNHEALTHY, reason, Recovery.AUTOMATIC)
    own = _failed_calls(_own(mig.errors))
    if own is None and parent.state is not HealthState.HEALTHY:
        return _health(parent.state, f"its GPU {parent_name}: {parent.reason}", parent.recovery, parent.cause)
    return own or Health()


def _rows(facts: GpuFacts) -> Health | None:
    if facts.remapped_rows_failed:
        reason = "a memory row could not be remapped: the GPU has no spare rows left for it"
        return _health(HealthState.UNHEALTHY, reason, Recovery.REPLACE, Trouble.ROW_REMAP)
    if facts.sram is not None and facts.sram.threshold_exceeded:
        return _health(HealthState.UNHEALTHY, SRAM_EXCEEDED, Recovery.REPLACE, Trouble.SRAM)
    if facts.remapped_rows_pending:
        reason = "a memory row waits to be remapped at the next reset of the GPU"
        return _health(HealthState.DEGRADED, reason, Recovery.RESET, Trouble.ROW_REMAP)
    return None


def _fabric(facts: GpuFacts) -> Health | None:
    """No worse than degraded: the policy decides how bad it is when it judges the signals between scans."""
    found = None if facts.mig_mode == 1 else trouble(facts.fabric)
    if found is None:
        return None
    return _health(HealthState.DEGRADED, found.detail, Recovery.AUTOMATIC, Trouble.FABRIC)


def _notes(gpu: LocatedGpu, errors: Iterable[CallError], node_missing: str) -> Health:
    facts = gpu.facts
    if facts.mig_mode is not None and facts.mig_pending is not None and facts.mig_mode != facts.mig_pending:
        wanted = "enabled" if facts.mig_pending else "disabled"
        reason = f"MIG mode will be {wanted} at the next reset of the GPU"
        return _health(HealthState.DEGRADED, reason, Recovery.RESET)
    failed = _failed_calls(errors)
    if failed is not None:
        return failed
    if gpu.recalled:
        reason = "the driver does not report its UUID; ostler uses the remembered one"
        return _health(HealthState.DEGRADED, reason, Recovery.AUTOMATIC)
    if node_missing:
        reason = f"its device node {node_missing} does not exist; nvidia-modprobe or nvidia-persistenced makes it"
        return _health(HealthState.DEGRADED, reason, Recovery.AUTOMATIC)
    return Health()


def _own(errors: Iterable[CallError]) -> list[CallError]:
    return [error for error in errors if not any(word in error.call for word in _ABOUT_PAIRS)]


def _failed_calls(errors: Iterable[CallError]) -> Health | None:
    for error in errors:
        if error.error not in _NO_FAULT:
            _, recovery = _FAULTS.get(error.error, ("", Recovery.AUTOMATIC))
            return _health(HealthState.DEGRADED, f"the call {error.call} failed ({error.error})", recovery)
    return None


def _fault(state: HealthState, error: str, otherwise: str) -> Health:
    sentence, recovery = _FAULTS.get(error, (otherwise, Recovery.AUTOMATIC))
    reason = sentence if error == NOT_LISTED else f"{sentence} ({error})"
    return _health(state, reason, recovery, _CAUSES.get(error, ""))


def _health(state: HealthState, reason: str, recovery: Recovery, cause: str = "") -> Health:
    return Health(state, reason, recovery=recovery, cause=str(cause))


NOT_SUPPORTED, COMPLETED = 0, 3
"""States of registration."""

_TRUE, _FALSE = 1, 2
_BANDWIDTH, _RECOVERING, _UNHEALTHY_ROUTE, _TIMEOUT = 0, 2, 4, 6
"""Positions of the mask's two-bit fields, each of which says whether a fault is present."""
_CONFIGURATION, _PARTITION = 8, 12
_CONFIGURED = (0, 1)
"""Values of the configuration that mean no fault: not reported, or correct."""
_UNHEALTHY, _LIMITED = 2, 3
"""Summaries."""
_WRONG = {
    2: "its system GUID is wrong",
    3: "the chassis' serial number is wrong",
    4: "it has no partition",
    5: "it has too few NVLinks",
    6: "its firmware does not fit",
    7: "its location is not valid",
    8: "its state is not valid",
}
_NO_PARTITION = 4


def clique(fabric: Fabric | None) -> str | None:
    """``<cluster>.<clique>`` while the GPU is a healthy part of its NVLink fabric; a cluster of zeros is none."""
    if fabric is None or fabric.state != COMPLETED or not fabric.cluster_uuid.strip("0-"):
        return None
    found = trouble(fabric)
    if found is not None and found.code != NARROW:
        return None
    return f"{fabric.cluster_uuid}.{fabric.clique_id}"


def trouble(fabric: Fabric | None) -> Condition | None:
    """The worst trouble of the GPU's fabric; None while it is healthy, absent, or not joined yet."""
    return None if fabric is None or fabric.state != COMPLETED else next(_troubles(fabric), None)


def _troubles(fabric: Fabric) -> Iterator[Condition]:
    mask = fabric.health_mask or 0
    if _pair(mask, _UNHEALTHY_ROUTE) == _TRUE:
        yield _of("its routes to other GPUs are unhealthy", UNREACHABLE)
    if fabric.status != 0:
        yield _of(f"it could not join (NVML's error {fabric.status})", APART)
    configuration = mask >> _CONFIGURATION & 0xF
    if _pair(mask, _PARTITION) == _FALSE and configuration in _CONFIGURED:
        configuration = _NO_PARTITION
    if configuration not in _CONFIGURED:
        yield _of(_WRONG.get(configuration, f"it is configured wrongly (fault {configuration})"), APART)
    if _pair(mask, _RECOVERING) == _TRUE:
        yield _of("its routes to other GPUs are being recovered", APART)
    if _pair(mask, _TIMEOUT) == _TRUE:
        yield _of("it recovers from accesses that timed out", APART)
    if fabric.health_summary == _UNHEALTHY:
        yield _of("it is unhealthy for an unknown reason", APART)
    if _pair(mask, _BANDWIDTH) == _TRUE or fabric.health_summary == _LIMITED:
        yield _of("its bandwidth is degraded", NARROW)


def _pair(mask: int, shift: int) -> int:
    return mask >> shift & 0b11


def _of(what: str, code: int) -> Condition:
    return Condition(Trouble.FABRIC, f"NVLink fabric: {what}", code)
