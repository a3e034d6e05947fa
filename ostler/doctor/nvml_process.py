"""Asks NVML once, in a process of its own, which prints one line of JSON and ends.

If the driver hangs, its callers hang where no signal and no thread can end them; a process can be left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from node.inventory.nvidia.time_slices import leave

NVML_TIMEOUT = 10.0
"""Seconds: nvmlInit takes some hundred milliseconds per GPU without persistence mode."""
NVML_HANGS = "HANGS"
"""The status if NVML did not answer in time; not an error of NVML."""


@dataclass(frozen=True, slots=True)
class MigAnswer:
    """MIG of a GPU, in NVML's numbers; ``mode`` and ``pending`` are None where the GPU does not support it."""

    index: int
    mode: int | None
    pending: int | None
    virtualization: int | None
    architecture: int | None


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """``status`` as in NvmlFacts or NVML_HANGS; ``gpus``: their number; ``lost``: those that do not answer, for people.

    ``modes``: the compute mode of each GPU that reports one, by UUID.
    """

    status: str
    detail: str = ""
    driver_version: str = ""
    gpus: int = 0
    lost: tuple[str, ...] = ()
    modes: tuple[tuple[str, int], ...] = ()
    mig: tuple[MigAnswer, ...] = ()

    def to_json(self) -> str:
        """The answer on one line, as the process prints it."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> NvmlAnswer:
        """The answer that ``to_json`` wrote."""
        found: dict[str, Any] = json.loads(text)
        lists = {"lost": tuple(found["lost"]), "modes": tuple(map(tuple, found["modes"]))}
        return cls(**{**found, **lists, "mig": tuple(MigAnswer(**each) for each in found["mig"])})


def ask_nvml(driver_root: Path, library: Path | None, proc: Path, timeout: float = NVML_TIMEOUT) -> NvmlAnswer:
    """Call NVML in a process of its own, and leave that process behind if it hangs."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "ostler.doctor.nvml_process",
        str(driver_root),
        str(library or ""),
        str(proc),
    ]
    # The folders of this process and not the working directory: whoever may write there must not run code as root.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment, text=True
        )
    except OSError as error:
        return NvmlAnswer("CRASHED", f"cannot start a process that calls NVML: {error}")
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        leave(process)
        return NvmlAnswer(NVML_HANGS, f"no answer within {timeout:g} s")
    if process.returncode != 0:
        last = err.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        return NvmlAnswer("CRASHED", f"the process that called NVML ended: {last[0]}")
    return NvmlAnswer.of_json(out)


def main(driver_root: str, library: str, proc: str) -> None:
    """Read NVML and print the answer; ``library`` is empty if it must be searched for."""
    # Here and not above: the process that asks must not load them.
    from node.inventory.facts import NvmlFacts
    from node.inventory.nvidia.compute_modes import ComputeModeError, NvmlComputeModes
    from node.inventory.nvidia.nvml import NvmlSource

    source = NvmlSource(Path(driver_root), Path(library) if library else None, proc=Path(proc))
    facts = source.read().nvml or NvmlFacts()
    well = [gpu for gpu in facts.gpus if not gpu.error]
    modes = []
    reader = NvmlComputeModes(source.sessions)
    for gpu in well:
        if gpu.uuid:
            with contextlib.suppress(ComputeModeError):
                modes.append((gpu.uuid, reader.read(gpu.uuid)))
    lost = [f"GPU {gpu.index} ({gpu.uuid or gpu.bus_id or 'unknown'}): {gpu.error}" for gpu in facts.gpus if gpu.error]
    answer = NvmlAnswer(
        facts.status,
        facts.detail,
        facts.driver_version or "",
        len(facts.gpus),
        tuple(lost),
        tuple(modes),
        tuple(
            MigAnswer(gpu.index, gpu.mig_mode, gpu.mig_pending, gpu.virtualization_mode, gpu.architecture)
            for gpu in well
        ),
    )
    sys.stdout.write(answer.to_json() + "\n")
    sys.stdout.flush()
    # The library's own work at the end of a process may hang as its calls do.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:4])
