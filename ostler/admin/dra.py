"""The second door as people see it: what is published, what is prepared. Plain values for the command line.

``ostler.admin.dra_views`` makes these values out of those of the door's parts.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from node.offer import Offer
from node.values import Value, value


class DeviceState(StrEnum):
    """A device of a pool, as the API server has it beside as it should be."""

    PUBLISHED = "published"
    MISSING = "missing"
    """Should be in a slice, and is in none that the API server has."""
    SURPLUS = "surplus"
    """The API server has it, and it should not be there any more."""
    WITHHELD = "withheld"
    """Not published, for the reason that is given."""


@value
class SliceDevice(Value):
    """A device. ``slice``: number of the ResourceSlice that has it, the first is 0; None where none has.

    ``taints`` as ``key=value:effect``. ``why``: why it is tainted or withheld.
    """

    name: str
    state: DeviceState
    slice: int | None = None
    taints: tuple[str, ...] = ()
    why: str = ""


@value
class PoolView(Value):
    """One pool. ``slices``: how many ResourceSlices of it the API server has.

    ``in_order``: it has what it should have, facts and order of devices included. ``dropped``: feature gates of the API
    server without which something is not stored. ``problem``: why the last attempt to write failed.
    """

    name: str
    slices: int = 0
    devices: tuple[SliceDevice, ...] = ()
    in_order: bool = False
    dropped: tuple[str, ...] = ()
    problem: str = ""

    def count(self, state: DeviceState) -> int:
        """How many devices are in that state."""
        return sum(device.state is state for device in self.devices)


@value
class SlicesView(Value):
    """All that this node publishes. ``created``, ``updated``, ``deleted``: writes since the start.

    ``generation``: of the snapshot that it was made from, 0 before the first.
    """

    driver: str
    pools: tuple[PoolView, ...] = ()
    generation: int = 0
    created: int = 0
    updated: int = 0
    deleted: int = 0


@value
class ClaimDevice(Value):
    """A device of a claim. ``cdi_devices``: the names that the container runtime gets."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_devices: tuple[str, ...] = ()
    share_id: str = ""


class ClaimState(StrEnum):
    """How far a claim's preparation is."""

    PREPARED = "prepared"
    STARTED = "started"
    """Its devices are taken, and the kubelet was not answered."""
    VOID = "void"
    """Prepared before a reboot: its devices stay taken until the kubelet asks again or it is gone."""
    REFUSED = "refused"
    """It holds nothing: what was said to the kubelet is in ``stuck``."""


@value
class ClaimView(Value):
    """A claim that holds devices of this node, or was refused them lately.

    ``since``: Unix seconds at which its devices were taken or it was refused, 0 where not known. ``pods``: UIDs of
    those that it was reserved for. ``stuck``: why the last attempt failed, empty when all is well.
    """

    namespace: str
    name: str
    uid: str
    state: ClaimState
    since: float = 0.0
    pods: tuple[str, ...] = ()
    devices: tuple[ClaimDevice, ...] = ()
    stuck: str = ""


@value
class DraStatus(Value):
    """The second door in one line.

    ``registration``: a word of ``driver.door.registration.RegistrationState``. ``devices``: how many should be
    published, ``published``: how many of them the API server has. ``claims``: how many hold devices. ``unpublished``:
    why slices are not as they should be; ``problem``: that, or why the kubelet does not take the driver; empty when all
    is well.
    """

    driver: str
    registration: str
    socket: str = ""
    health_streams: int = 0
    devices: int = 0
    published: int = 0
    claims: int = 0
    problem: str = ""
    unpublished: str = ""


class DraView(Protocol):
    """What the agent's own service asks of the second door."""

    @property
    def offer(self) -> Offer:
        """What the door makes of the snapshot that is shown."""
        ...

    def slices(self) -> SlicesView:
        """What is published, and what would be."""
        ...

    def claims(self) -> tuple[ClaimView, ...]:
        """Every claim that holds devices or was refused lately, in a stable order."""
        ...
