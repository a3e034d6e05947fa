"""Moves interfaces by the kernel's own interfaces: rtnetlink, RDMA netlink, ethtool, and /proc/sys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from node.interfaces.model import AttachedInterface, HostSetup, InterfaceError, MovableInterface


def _nothing(_: str) -> None:
    pass


class KernelMover:
    """``InterfaceMover`` of the network namespace that the calling thread is in.

    ``sys`` is where sysfs is mounted. ``before`` is called with a name before each call that changes something.
    """

    def __init__(self, sys: Path = Path("/sys"), *, before: Callable[[str], None] = _nothing) -> None:
        self._sys = sys
        self._before = before

    def look(self, interface: MovableInterface) -> HostSetup:
        """See ``InterfaceMover``."""
        raise InterfaceError(f"interface {interface.interface}: not served yet")

    def attach(self, interface: MovableInterface, setup: HostSetup, netns: Path) -> AttachedInterface:
        """See ``InterfaceMover``."""
        raise InterfaceError(f"interface {interface.interface}: not served yet")

    def detach(self, interface: MovableInterface, setup: HostSetup, netns: Path | None) -> bool:
        """See ``InterfaceMover``."""
        raise InterfaceError(f"interface {interface.interface}: not served yet")

    def marked(self, netns: Path | None = None) -> Mapping[str, str]:
        """See ``InterfaceMover``."""
        return {}
