"""Who has what, as people see it: plain values for the agent's own service, the command line and metrics.

``ostler.admin.holds_view`` makes them out of the ledger and what the doors offer.
"""

from __future__ import annotations

from typing import Protocol

from node.ledger.ledger import Hold
from node.offer import Cause
from node.rules import Door, Doors
from node.values import Value, value


@value
class Withholding(Value):
    """A device is not given out through a door, because of a hold on it or on one that overlaps it.

    ``why``: one sentence. ``waits_for``: what has to happen before it is offered there.
    """

    door: Door
    cause: Cause
    why: str
    waits_for: str = ""


@value
class DeviceHolds(Value):
    """A device that is held or withheld. ``doors``: what its rule says, None without a rule.

    ``holds``: those of the device itself, the deciding one first. ``losers``: claims (``namespace/name``) that could
    not take it.
    """

    device: str
    doors: Doors | None = None
    holds: tuple[Hold, ...] = ()
    withheld: tuple[Withholding, ...] = ()
    losers: tuple[str, ...] = ()


@value
class HoldsStatus(Value):
    """Holds in one line. The numbers are of devices, ``losers`` of claims.

    What is not as it should be, in words and empty when it is: ``kubelet``: what containers have through the plugin
    door is not known in whole; ``api_server``: which claims the pods of this node have is not known; ``both``: why
    rules with door both act as plugin; ``doors``: what the Node says of doors means nothing, or may be old;
    ``processes``: why processes left on devices are not looked for; ``containers``: why it is not known whether
    containers of deleted pods still run.
    """

    by_plugin: int = 0
    by_dra: int = 0
    draining: int = 0
    moving: int = 0
    losers: int = 0
    kubelet: str = ""
    api_server: str = ""
    both: str = ""
    doors: str = ""
    processes: str = ""
    containers: str = ""


@value
class HoldsReport(Value):
    """Devices in the order of the inventory; those of which there is nothing to say are left out."""

    devices: tuple[DeviceHolds, ...] = ()
    status: HoldsStatus = HoldsStatus()


class UnknownDevice(Exception):
    """No device has that name or UUID."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no device is called {name!r}; 'ostler devices' lists those that are here")
        self.name = name


class NotReleasable(Exception):
    """A device is not draining: whoever has it gives it back by ending, not by a command."""

    def __init__(self, device: str, holder: Hold | None) -> None:
        if holder is None:
            super().__init__(f"device {device} is not held, so that there is nothing to release")
        else:
            end = "end the claim's pods" if holder.door is Door.DRA else "delete the pod"
            super().__init__(
                f"device {device} is {holder.words}; "
                f"only a draining device can be released: {end}, and it is given back"
            )
        self.device = device
        self.holder = holder


class HoldsView(Protocol):
    """What the agent's own service asks about holds."""

    def holds(self) -> HoldsReport:
        """Who has what, and what is withheld because of it."""
        ...

    def release(self, device: str) -> tuple[str, ...]:
        """Give a draining device (name or UUID) back; what was let go, one line each.

        Raises ``UnknownDevice`` and ``NotReleasable``.
        """
        ...
