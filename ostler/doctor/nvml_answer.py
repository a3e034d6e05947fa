"""What NVIDIA's management library (NVML) says, asked in a process of its own.

A driver that hangs makes its callers hang where no signal and no thread can end them; a process can be left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 10.0
"""Seconds: nvmlInit takes some hundred milliseconds per GPU without persistence mode."""
HANGS = "HANGS"
"""Not an error of NVML: it did not answer in time."""


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """``status`` as in NvmlFacts or HANGS; ``gpus``: how many; ``lost``: which of them do not answer, in words."""

    status: str
    detail: str = ""
    driver_version: str = ""
    gpus: int = 0
    lost: tuple[str, ...] = ()


def ask_nvml(driver_root: Path, library: Path | None, proc: Path, timeout: float = TIMEOUT) -> NvmlAnswer:
    """Ask NVML in a process of its own, and leave that process behind when it hangs."""
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
        return NvmlAnswer("CRASHED", f"no process to ask it can be started: {error}")
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _leave(process)
        return NvmlAnswer(HANGS, f"no answer within {timeout:g} s")
    if process.returncode != 0:
        last = err.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        return NvmlAnswer("CRASHED", f"the process that asked ended: {last[0]}")
    answer = json.loads(out)
    return NvmlAnswer(
        answer["status"], answer["detail"], answer["driver_version"] or "", answer["gpus"], tuple(answer["lost"])
    )


def _leave(process: subprocess.Popen[str]) -> None:
    """Kill it and wait for a moment only: in the kernel it may never end."""
    process.kill()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.5)
