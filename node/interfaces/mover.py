"""The kernel's operations that move interfaces into pods and back; ``node.interfaces.kernel`` is the real one.

All calls block (milliseconds, more while a driver holds the kernel's lock) and belong into a worker thread. Each is
idempotent: a process may be killed between any two kernel calls, and the same call made again by its successor finishes
the work. Calls for different interfaces may run side by side; the caller lets only one run per interface.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from node.interfaces.model import AttachedInterface, HostSetup, MovableInterface

ALIAS = "ostler:"
"""An interface of ours has this and its device's name as alias (IFLA_IFALIAS) from before it moves until it is back."""


def alias_of(device: str) -> str:
    """The alias that marks the interface of this device."""
    return ALIAS + device


def subject_of(interface: MovableInterface) -> str:
    """How errors name the interface."""
    return f"interface {interface.interface} of device {interface.device}"


class InterfaceMover(Protocol):
    """Moves interfaces into network namespaces and takes them back."""

    def look(self, interface: MovableInterface) -> HostSetup:
        """What the interface has on the node now, to be recorded before it is moved.

        Raises InterfaceError if it is not in the host's namespace, or if what the claim wants cannot be.
        """

    def attach(self, interface: MovableInterface, setup: HostSetup, netns: Path) -> AttachedInterface:
        """Move the interface into the namespace and set it up there; also finishes a move that was begun.

        On InterfaceError the interface is back on the node with what ``setup`` says, or the text says that it is not
        and where it was left (then ``detach`` must follow).
        """

    def detach(self, interface: MovableInterface, setup: HostSetup, netns: Path | None) -> str:
        """Take the interface back and restore ``setup``; ``netns``: where it may be, None or gone for unknown.

        Its name once it is on the node as it was, also when it was never moved: another one than before if that is
        taken. Empty if it is in neither namespace. Raises InterfaceError if it is there but cannot be moved or
        restored; the call may be repeated.
        """

    def is_gone(self, interface: MovableInterface, setup: HostSetup) -> bool:
        """Whether an interface that ``detach`` did not find can never come back; raises InterfaceError.

        Its device has left the bus, or, for one without a device below it, another interface has its name on the node.
        """

    def marked(self, devices: Collection[str], netns: Path | None = None) -> Mapping[str, str]:
        """By device, the present name of each of these that is in the namespace (None: the host's) with its alias.

        For an agent that lost its journal. Raises InterfaceError; a namespace that is gone has none.
        """
