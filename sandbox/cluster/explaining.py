"""Why a pod of the sandbox's cluster waits, in the words of ``ostler explain``."""

from __future__ import annotations

from pathlib import Path

from sandbox.process import ostler_output


async def explained(kubeconfig: Path, pod: str, namespace: str) -> str:
    """The output of ``ostler explain`` for a pod, run as a command of its own."""
    words = ("explain", f"pod/{pod}", "--namespace", namespace, "--color", "never", "--kubeconfig", str(kubeconfig))
    _, out, err = await ostler_output(*words)
    return out or err
