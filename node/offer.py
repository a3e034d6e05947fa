"""The values of an offer: what a door shows of each device, with a reason in one sentence and a cause in one word.

``node.eligibility`` decides the offer.
"""

from __future__ import annotations

from enum import StrEnum

from node.edits.options import EditOptions
from node.inventory.model import Device
from node.rules import Rule
from node.sharing import Amounts, replica_of
from node.values import Value, quick, value


class Cause(StrEnum):
    """Why a device may not be allocated, in one word: what can be counted where the sentence cannot."""

    NO_RULE = "no_rule"
    OTHER_DOOR = "other_door"
    """Its rule offers it through the other door, or it is held through that one."""
    OVERLAP = "overlap"
    """What it is a part of, a part of it, or itself under another id or resource, is held through the same door."""
    PENDING_RELEASE = "draining"
    """Nobody holds it, but a process was left on it."""
    HOLDS_UNKNOWN = "holds_unknown"
    """The kubelet has not reported what the plugin door has allocated."""
    MOVING = "moving"
    """A rule moves it from one door to the other, and it is not free of the old one yet."""
    BAD_NAME = "bad_name"
    """The resource's name is not valid in Kubernetes."""
    RULE_CONFLICT = "rule_conflict"
    """Two rules with different options give one resource."""
    NOT_UNIFORM = "not_uniform"
    """The MIG strategy single, and devices of several kinds."""
    NODE_USE = "node_use"
    """The node itself needs it, or its virtual functions are offered in its place."""
    HEALTH = "health"
    GONE = "gone"
    """It is not there any more: destroyed on purpose (MIG instances, virtual functions), or fallen off the bus."""
    LINK_DOWN = "link_down"
    MIG_MODE = "mig_mode"
    """A GPU in MIG mode: only its instances can be allocated."""
    UNMOVABLE = "unmovable"
    """Its interface moves into the pod, but the container runtime does not say when pods start."""
    UNFIT = "unfit"
    """Something that its containers need is missing."""


@quick
@value
class OfferedDevice(Value):
    """A device as a resource shows it: id towards the kubelet, whether it may be allocated, and why (not).

    ``cause`` is None for one that may be allocated. ``edits``: how it is given to a container, where its rule is
    another one of the resource than the first; None for the resource's own. ``share``: the number of the replica, which
    takes ``amounts`` of ``whole``; empty for the device as a whole.
    """

    id: str
    device: Device
    healthy: bool
    reason: str = ""
    cause: Cause | None = None
    edits: EditOptions | None = None
    share: str = ""
    amounts: Amounts = ()
    whole: Amounts = ()

    @property
    def device_id(self) -> str:
        """The id of the device, of which ``id`` may be a replica's."""
        return replica_of(self.id)[0] if self.share else self.id


@value
class ResourceOffer(Value):
    """A resource, the first rule that it comes from, and its devices in the snapshot's order."""

    resource: str
    rule: Rule
    devices: tuple[OfferedDevice, ...]

    @property
    def distinct(self) -> tuple[OfferedDevice, ...]:
        """Every device once: a shared one by a replica that may be allocated, if there is one."""
        found: dict[str, OfferedDevice] = {}
        for item in self.devices:
            before = found.get(item.device.name)
            if before is None or (item.healthy and not before.healthy):
                found[item.device.name] = item
        return tuple(found.values())


@value
class Withheld(Value):
    """A device that this door does not show, and why."""

    device: Device
    reason: str
    cause: Cause = Cause.NO_RULE


@value
class Offer(Value):
    """Resources sorted by name, and what is not shown."""

    resources: tuple[ResourceOffer, ...] = ()
    withheld: tuple[Withheld, ...] = ()

    def resource(self, name: str) -> ResourceOffer | None:
        """The resource of that name."""
        return next((resource for resource in self.resources if resource.resource == name), None)
