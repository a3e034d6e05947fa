"""Why a pod of the sandbox's cluster waits, and how many would fit, in the words of the commands that say it."""

from __future__ import annotations

from pathlib import Path

from sandbox.process import ostler_output


async def explained(kubeconfig: Path, pod: str, namespace: str) -> str:
    """The output of ``ostler explain`` for a pod, run as a command of its own."""
    words = ("explain", f"pod/{pod}", "--namespace", namespace, "--color", "never", "--kubeconfig", str(kubeconfig))
    _, out, err = await ostler_output(*words)
    return out or err


async def fitted(kubeconfig: Path, file: str, copies: str) -> str:
    """The output of ``ostler fit`` for the pods of a file, run as a command of its own."""
    words = ("fit", "-f", file, "--copies", copies, "--color", "never", "--kubeconfig", str(kubeconfig))
    _, out, err = await ostler_output(*words)
    return out or err
