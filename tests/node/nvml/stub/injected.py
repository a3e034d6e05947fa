"""Troubles of described hardware, made and ended while processes use it.

Every change is in force when the method returns: the library reads its description again at the next call, and a wait
for events is woken by it. One object serves any number of processes that have its ``environment``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from node.inventory.facts import NvmlFacts
from tests.node.nvml import stub

ALL = 0xFFFFFFFF
"""Every instance of a GPU."""
XID, DOUBLE_BIT, UNAVAILABLE, RECOVERY_ACTION = 0x8, 0x2, 0x4000, 0x8000
"""Types of events."""
HW_THERMAL, HW_POWER_BRAKE = 0x40, 0x80
"""Reasons for slower clocks."""
RECOVERY_FIELD = 230
NVLINK_FIELDS = {"crc_flit": 38, "crc_data": 45, "replay": 52, "recovery": 59, "ecc": 160}

_WELL: dict[str, object] = {
    "ecc.volatile": 0,
    "ecc.aggregate": 0,
    "retired_pages_pending": 0,
    "clocks_event_reasons": 0,
    f"field.{RECOVERY_FIELD}": 0,
    **{f"field.{field}": 0 for field in NVLINK_FIELDS.values()},
}


class InjectedNvml:
    """The library in ``folder`` (made if missing, without the C symbols named) and the hardware that it serves.

    GPUs are named by their index. Every GPU starts well, and says so to every question about its health.
    """

    def __init__(self, folder: Path, facts: NvmlFacts, without: Sequence[str] = ()) -> None:
        self.facts = facts
        self.library = stub.build(folder, without)
        self.description = folder / "hardware.txt"
        self._lines: dict[str, object] = {}
        self.clear()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to be served."""
        return {stub.VARIABLE: str(self.description)}

    @property
    def violations(self) -> tuple[str, ...]:
        """What a driver would have suffered from, in words; empty is good."""
        path = self._beside("violations")
        return tuple(path.read_text().splitlines()) if path.exists() else ()

    @property
    def listeners(self) -> int:
        """How many GPUs' events were registered for so far, each time counted; waits begin after that."""
        path = self._beside("registered")
        return path.stat().st_size if path.exists() else 0

    @property
    def hanging(self) -> bool:
        """Whether some call hangs, or did since the last ``hang``."""
        return self._beside("hanging").exists()

    def _beside(self, suffix: str) -> Path:
        return self.description.with_name(f"{self.description.name}.{suffix}")

    def clear(self) -> None:
        """All GPUs are well and the driver answers; events that happened have happened."""
        self._lines = {f"gpu{gpu.index}.{key}": value for gpu in self.facts.gpus for key, value in _WELL.items()}
        self._write()

    def set(self, lines: Mapping[str, object]) -> None:
        """Any lines of a description; None takes one away."""
        self._lines = {key: value for key, value in {**self._lines, **lines}.items() if value is not None}
        self._write()

    def serve(self, facts: NvmlFacts) -> None:
        """Other hardware, or another version of the driver; troubles stay."""
        self.facts = facts
        self._write()

    # What MIG calls have changed.

    def reset(self, gpu: int) -> None:
        """The GPU is reset: the pending MIG mode is in force, and no instance is left."""
        path = self._beside("mig")
        lines = dict(line.split(" ", 1) for line in path.read_text().splitlines()) if path.exists() else {}
        pending = lines.get(f"gpu{gpu}.mig_pending")
        if pending is None:
            return
        gone = (f"gpu{gpu}.gi", *(f"gpu{gpu}.mig{digit}" for digit in range(10)))
        kept = {key: value for key, value in lines.items() if not key.startswith(gone)}
        kept |= {f"gpu{gpu}.mig_mode": pending, f"gpu{gpu}.mig_max_devices": "7" if pending == "1" else "0"}
        stub.write(path, "".join(f"{key} {value}\n" for key, value in kept.items()))

    def boot(self) -> None:
        """The node is booted again: MIG is as the facts say."""
        self._beside("mig").unlink(missing_ok=True)

    # What happens once.

    def xid(self, gpu: int, code: int, gpu_instance: int = ALL, compute_instance: int = ALL) -> None:
        """The driver reports a critical XID, of an instance or of the whole GPU."""
        self.event(gpu, XID, code, gpu_instance, compute_instance)

    def event(self, gpu: int, kind: int, data: int = 0, gpu_instance: int = ALL, compute_instance: int = ALL) -> None:
        """An event of any type."""
        path = self._beside("events")
        with path.open("a", encoding="ascii") as file:
            file.write(f"{gpu} {kind} {data} {gpu_instance} {compute_instance}\n")

    # What is so until it is changed again.

    def lose(self, gpu: int, answering: Sequence[str] = ()) -> None:
        """The GPU falls off the bus: every call on it fails but those named, and every wait for its events."""
        self.set({f"gpu{gpu}.error.*": "GPU_IS_LOST", **{f"gpu{gpu}.error.{call}": "OK" for call in answering}})

    def find(self, gpu: int) -> None:
        """It is back, and no call on it fails any more."""
        gone = [key for key in self._lines if key.startswith(f"gpu{gpu}.error.")]
        self.set(dict.fromkeys(gone))

    def ecc(self, gpu: int, volatile: int, aggregate: int | None = None) -> None:
        """Uncorrectable memory errors since the driver was loaded, and ever (as many if not given)."""
        self.set(
            {
                f"gpu{gpu}.ecc.volatile": volatile,
                f"gpu{gpu}.ecc.aggregate": volatile if aggregate is None else aggregate,
            }
        )

    def rows(self, gpu: int, *, pending: bool = False, failed: bool = False) -> None:
        """Memory rows that wait to be remapped, or could not be."""
        self.set({f"gpu{gpu}.remapped_rows_pending": int(pending), f"gpu{gpu}.remapped_rows_failed": int(failed)})

    def sram(self, gpu: int, *, exceeded: bool, parity: int = 0, secded: int = 0) -> None:
        """Uncorrectable errors of the SRAM, and whether they are too many."""
        found = {"threshold_exceeded": int(exceeded), "volatile_parity": parity, "volatile_secded": secded}
        found |= {"aggregate_parity": parity, "aggregate_secded": secded}
        self.set({f"gpu{gpu}.sram.{key}": value for key, value in found.items()})

    def fabric(self, gpu: int, **numbers: int) -> None:
        """What the NVLink fabric says: state, status, clique, health_mask, health_summary."""
        self.set({f"gpu{gpu}.fabric.{key}": value for key, value in numbers.items()})

    def pages(self, gpu: int, *, pending: bool) -> None:
        """Memory pages that wait to be retired (boards before row remapping)."""
        self.set({f"gpu{gpu}.retired_pages_pending": int(pending)})

    def recovery(self, gpu: int, action: int) -> None:
        """The recovery action that the driver names (field 230); 0 is none. Tells no event: see ``event``."""
        self.field(gpu, RECOVERY_FIELD, action)

    def throttle(self, gpu: int, reasons: int) -> None:
        """Why the clocks are slower, as a mask; 0 is well."""
        self.set({f"gpu{gpu}.clocks_event_reasons": reasons})

    def nvlink_errors(self, gpu: int, **counts: int) -> None:
        """Counters of all links of the GPU: crc_flit, crc_data, replay, recovery, ecc."""
        self.set({f"gpu{gpu}.field.{NVLINK_FIELDS[name]}": count for name, count in counts.items()})

    def link(self, gpu: int, link: int, *, active: bool) -> None:
        """An NVLink goes down or comes up."""
        self.set({f"gpu{gpu}.nvlink{link}.active": int(active)})

    def field(self, gpu: int, field: int, value: int | str, scope: int = 0) -> None:
        """A field value, or an error's name in its place."""
        self.set({f"gpu{gpu}.field.{field}" + (f".{scope}" if scope else ""): value})

    def processes(
        self, gpu: int, *processes: tuple[int, int] | tuple[int, int, int, int], mig: int | None = None
    ) -> None:
        """What computes on the GPU or on a MIG device: (pid, bytes[, GPU instance, compute instance]) each."""
        listed = [(*each, "-", "-")[:4] for each in processes]
        key = f"gpu{gpu}.processes" if mig is None else f"gpu{gpu}.mig{mig}.processes"
        self.set({key: ",".join(":".join(map(str, each)) for each in listed) or None})

    def fail(self, call: str, error: str, gpu: int | None = None) -> None:
        """A call fails with an error (``OK`` ends that); the call by the binding's name, without version."""
        self.set({f"{_of(gpu)}error.{call}": error})

    def hang(self, call: str, gpu: int | None = None) -> None:
        """A call does not return until ``release``."""
        self._beside("hanging").unlink(missing_ok=True)
        self.set({f"{_of(gpu)}hang.{call}": 1})

    def release(self) -> None:
        """Every call that hangs returns."""
        self.set({key: None for key in self._lines if "hang." in key})

    def unload(self) -> None:
        """The kernel module goes: nothing can be opened, and what is open fails."""
        self.set({"init": "DRIVER_NOT_LOADED", "error.*": "UNINITIALIZED"})

    def load(self) -> None:
        """It is back."""
        self.set({"init": None, "error.*": None})

    def _write(self) -> None:
        own = "".join(f"{key} {value}\n" for key, value in self._lines.items())
        stub.write(self.description, stub.describe(self.facts) + own)


def _of(gpu: int | None) -> str:
    return "" if gpu is None else f"gpu{gpu}."
