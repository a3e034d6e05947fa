"""Why a pod of the sandbox's cluster waits, in the words of ``ostler explain``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path


async def explained(kubeconfig: Path, pod: str, namespace: str) -> str:
    """The output of ``ostler explain`` for a pod, run as a command of its own."""
    words = ("explain", f"pod/{pod}", "--namespace", namespace, "--color", "never", "--kubeconfig", str(kubeconfig))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "ostler", *words, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    return (out or err).decode(errors="replace")
