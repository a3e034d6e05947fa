"""Claims as the node driver sees them: what was allocated, what was prepared, and what can be wrong with a claim.

Frozen values without behaviour of their own. Field names are those of the resource.k8s.io API and of the kubelet's DRA
contract. They hold only the results of our own driver, and configurations for it and for its peers. The texts of errors
become events of the claim's pods.
"""

from __future__ import annotations

from enum import StrEnum

from driver.names import Peer
from kube.bodies import JsonObject
from node.sharing import Amounts
from node.values import Value, value


@value
class ClaimReference(Value):
    """How the kubelet names a claim."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@value
class DeviceToleration(Value):
    """A taint that a request tolerates; empty fields match everything, as in Kubernetes."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def covers(self, key: str, value: str, effect: str) -> bool:
        """Whether a device with this taint may be given anyway; the default operator is ``Equal``."""
        if (self.effect and self.effect != effect) or (self.key and self.key != key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == value)


@value
class AllocatedDevice(Value):
    """One result of an allocation.

    ``request`` may have a part after a slash (``main/sub``): the alternative of ``firstAvailable`` that was chosen.
    ``admin_access``: for monitoring only, beside the claim or pod that holds the device. ``share_id``: set if several
    claims share the device; ``amounts``: the capacity that the share takes.
    """

    request: str
    pool: str
    device: str
    share_id: str | None = None
    admin_access: bool = False
    amounts: Amounts = ()
    tolerations: tuple[DeviceToleration, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """Pool, device and share id (empty for none), which together are unique in a claim."""
        return self.pool, self.device, self.share_id or ""

    @property
    def main_request(self) -> str:
        """The request's name as the kubelet knows it."""
        return self.request.partition("/")[0]


class ConfigSource(StrEnum):
    """Who wrote a configuration; ``FromClass`` is the administrator."""

    CLASS = "FromClass"
    CLAIM = "FromClaim"


@value
class AllocatedConfig(Value):
    """Opaque parameters of our driver, with the requests that they are for (none: all).

    ``place``: their path, for messages: ``status.allocation.devices.config[0].opaque.parameters``. ``peer``: the driver
    that they are for, if it is not ours but one whose claims run on our devices.
    """

    source: ConfigSource
    requests: tuple[str, ...]
    parameters: JsonObject
    place: str
    peer: Peer | None = None

    @property
    def labelled_place(self) -> str:
        """``place``, with their origin unless the claim's author wrote them."""
        return f"{self.place} (from the DeviceClass)" if self.source is ConfigSource.CLASS else self.place


@value
class Allocation(Value):
    """The part of a claim's allocation that is ours, in the allocation's order."""

    claim: ClaimReference
    devices: tuple[AllocatedDevice, ...]
    configs: tuple[AllocatedConfig, ...] = ()
    reserved_for: tuple[str, ...] = ()
    """UIDs of the pods (or others) that may use the claim."""


@value
class PreparedDevice(Value):
    """One device of the kubelet's answer.

    ``interface``: its network interface on the node if that is moved into the pod, empty for none; not in the answer.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_devices: tuple[str, ...]
    share_id: str | None = None
    interface: str = ""


class RecordState(StrEnum):
    """How far a claim's preparation has got, in its record."""

    STARTED = "started"
    """The ledger has its devices; nothing else is certain."""
    COMPLETED = "completed"
    """The kubelet has been answered, or is about to be."""


class ClaimState(StrEnum):
    """How far a claim's preparation has got, as people see it."""

    PREPARED = "prepared"
    STARTED = "started"
    """The ledger has its devices, but the kubelet has not been answered."""
    VOID = "void"
    """Prepared before a reboot: its devices stay taken until the kubelet asks for it again or the claim is gone."""
    REFUSED = "refused"
    """It holds nothing; the problem says why."""


class ClaimError(Exception):
    """A claim cannot be prepared or released; the text names the field or device, what is wrong, and the fix.

    ``condition``: the reason of the condition that the claim's devices get; empty if they get none.
    """

    condition = ""


class Unavailable(ClaimError):
    """Temporary, and not the claim's fault: the API server, the disk, a device that another claim still holds."""


class PartitionPending(Unavailable):
    """A partition of a GPU can only be made or removed once something else ends, which the text names."""

    condition = "PartitionPending"


class PartitionNotMade(ClaimError):
    """A partition of a GPU cannot be made or removed; the text says why."""

    condition = "PartitionNotMade"


class SharingNotDone(ClaimError):
    """The claim's GPUs cannot be shared as it says, on this node or at the moment; the text says why."""

    condition = "SharingNotDone"


class ClaimReadForbidden(Unavailable):
    """The API server does not let us read the claim; ``reason`` in its own words.

    A node's own identity gets this for every claim that no pod of the node uses, even one that does not exist.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


@value
class ClaimStatus(Value):
    """A claim that holds devices of this node, or was refused them lately.

    ``users``: UIDs of the pods that it was reserved for. ``since``: Unix seconds at which it took its devices or was
    refused. ``problem``: why the last attempt to prepare it failed, empty if it succeeded. ``metadata_files``: on the
    host.
    """

    claim: ClaimReference
    state: ClaimState
    devices: tuple[PreparedDevice, ...] = ()
    users: tuple[str, ...] = ()
    since: float = 0.0
    problem: str = ""
    metadata_files: tuple[str, ...] = ()
