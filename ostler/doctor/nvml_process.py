"""The process that calls NVML for the checks: prints one line of JSON and ends.

Its arguments are the driver root, the library (empty to search for it) and the proc file system.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from node.inventory.facts import NvmlFacts
from node.inventory.nvidia.compute_modes import ComputeModeError, NvmlComputeModes
from node.inventory.nvidia.nvml import NvmlSource


def main(driver_root: str, library: str, proc: str) -> None:
    """Read NVML once and print the result."""
    source = NvmlSource(Path(driver_root), Path(library) if library else None, proc=Path(proc))
    facts = source.read().nvml or NvmlFacts()
    lost = [f"GPU {gpu.index} ({gpu.uuid or gpu.bus_id or 'unknown'}): {gpu.error}" for gpu in facts.gpus if gpu.error]
    modes = {}
    reader = NvmlComputeModes(source.sessions)
    for gpu in facts.gpus:
        if gpu.uuid and not gpu.error:
            with contextlib.suppress(ComputeModeError):
                modes[gpu.uuid] = reader.read(gpu.uuid)
    answer = {
        "status": facts.status,
        "detail": facts.detail,
        "driver_version": facts.driver_version,
        "gpus": len(facts.gpus),
        "lost": lost,
        "modes": modes,
        "mig": [
            (gpu.index, gpu.mig_mode, gpu.mig_pending, gpu.virtualization_mode, gpu.architecture)
            for gpu in facts.gpus
            if not gpu.error
        ],
    }
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    # The library's own work at the end of a process may hang as its calls do.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:4])
