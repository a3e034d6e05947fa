"""Network namespaces of a test's own, held by descriptors alone: when the last is closed, a namespace is gone."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from node.interfaces.namespace import NetworkNamespace

Result = TypeVar("Result")

_CLONE_NEWNET = 0x40000000


class TestNamespace:
    """``path`` names it to every process that may look into this one; ``run`` calls a function inside."""

    __test__ = False

    def __init__(self) -> None:
        made: list[int] = []

        def make() -> None:
            if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) == 0:
                made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if not made:
            raise PermissionError("no network namespace can be made")
        self.descriptor = made[0]
        self.path = Path(f"/proc/{os.getpid()}/fd/{self.descriptor}")

    def run(self, function: Callable[[], Result]) -> Result:
        with NetworkNamespace(self.path) as namespace:
            return namespace.run(function)

    def ip(self, *lines: str) -> None:
        """Run commands of ``ip`` inside."""
        batch = "\n".join(lines)
        done = self.run(
            lambda: subprocess.run(["ip", "-batch", "-"], input=batch, capture_output=True, text=True, check=False)
        )
        assert done.returncode == 0, done.stderr

    def shows(self, *words: str) -> list[dict[str, Any]]:
        """What ``ip -json`` shows inside."""
        command = ["ip", "-json", "-details", *words]
        done = self.run(lambda: subprocess.run(command, capture_output=True, text=True, check=True))
        return [each for each in json.loads(done.stdout or "[]") if each]

    def names(self) -> set[str]:
        """The interfaces inside but for loopback."""
        return {each["ifname"] for each in self.shows("link")} - {"lo"}

    def close(self) -> None:
        os.close(self.descriptor)
        self.path = Path(f"/proc/{os.getpid()}/fd/gone")


def missing() -> str:
    """Why no such namespaces can be made here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root rights to make network namespaces"
    if shutil.which("ip") is None:
        return "needs the command ip"
    try:
        namespace = TestNamespace()
    except PermissionError as error:
        return str(error)
    try:
        namespace.ip("link add v0 type veth peer name v1")
    except AssertionError as error:
        return f"needs veth in the kernel: {error}"
    finally:
        namespace.close()
    return ""


@contextmanager
def namespaces(number: int) -> Iterator[list[TestNamespace]]:
    """So many namespaces, gone afterwards; skips where they cannot be made."""
    if reason := missing():
        pytest.skip(reason)
    made = [TestNamespace() for _ in range(number)]
    try:
        yield made
    finally:
        for each in made:
            if each.path.name != "gone":
                each.close()
