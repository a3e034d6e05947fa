"""What commands say of the sandbox's cluster: why a pod waits, how many would fit, what is free in its pools."""

from __future__ import annotations

from collections.abc import Sequence
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


async def pools_told(kubeconfig: Path, words: Sequence[str]) -> str:
    """The output of ``ostler pools`` with these words, run as a command of its own."""
    _, out, err = await ostler_output("pools", *words, "--kubeconfig", str(kubeconfig))
    return out or err
