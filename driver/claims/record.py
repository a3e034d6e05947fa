"""The record of one claim on disk, and its JSON form.

Fields that this version does not know survive when a record is rewritten, so that a downgrade followed by an upgrade
loses nothing. A missing field has its default; a field of a wrong type makes the record damaged, since its hash proves
that it was written that way. A record larger than ``LARGEST`` is not written, because it could not be read again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field

from driver.claims.model import ClaimError, ClaimReference, ClaimState, PreparedDevice, RecordState
from driver.metadata.model import ClaimMetadata
from kube.bodies import Json, JsonObject
from node.interfaces.model import MovableInterface
from node.inventory.model import PartitionShape
from node.ledger.holds import Hold
from node.rules import Door
from node.sharing import Amounts
from node.value_data import from_data, to_data
from node.values import Value, replace, value
from scheduling.api.excerpts import shown

SCHEMA = "claim/v1"
LARGEST = 8 << 20
"""Bytes of a record: the largest CDI file, as text in JSON, and room for everything else."""


@value
class RecordedDevice(Value):
    """A device of a claim: its allocation, what it is part of, and the CDI names in the answer to the kubelet.

    ``slices``: the memory slices that a MIG device has of its GPU, as in ``Hold``. ``partition``: made for this claim.
    ``amounts``: the capacity that a share takes of it, and ``whole`` the capacity that there was; both empty for a
    device that the claim has alone. ``interface``: the network interface that its pod gets, None if it stays on the
    node. ``unknown``: fields of other versions.
    """

    request: str
    pool: str
    device: str
    share_id: str | None = None
    admin_access: bool = False
    within: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    amounts: Amounts = ()
    whole: Amounts = ()
    slices: tuple[int, int] | None = None
    partition: PartitionShape | None = None
    interface: MovableInterface | None = None
    unknown: JsonObject = field(default_factory=dict)

    @property
    def allocated(self) -> tuple[str, str, str, str, bool]:
        """The device as the allocation gave it; two records of one allocation are equal in it."""
        return self.request, self.pool, self.device, self.share_id or "", self.admin_access

    @property
    def answer(self) -> PreparedDevice:
        """The device in the kubelet's answer."""
        main = self.request.partition("/")[0]
        moved = self.interface.interface if self.interface is not None else ""
        return PreparedDevice((main,) if main else (), self.pool, self.device, self.cdi_devices, self.share_id, moved)


@value
class ClaimRecord(Value):
    """A claim whose devices are taken.

    ``boot``: the kernel's boot id at preparation. The preparation of an earlier boot is void, though its devices stay
    taken. Empty if there is no id, and for a claim that was not prepared here but is known from other sources.
    ``since``: when the devices were taken, Unix seconds. ``spec``: the whole text of the claim's CDI file, empty if it
    needs none. ``users``: UIDs of the pods that the claim was reserved for. ``metadata``: what the claim's metadata
    files say, None if it has none. ``unknown``: fields of other versions.
    """

    claim: ClaimReference
    state: RecordState
    boot: str = ""
    since: float = 0.0
    devices: tuple[RecordedDevice, ...] = ()
    users: tuple[str, ...] = ()
    spec: str = ""
    metadata: ClaimMetadata | None = None
    unknown: JsonObject = field(default_factory=dict)

    def prepared_in(self, boot: str) -> bool:
        """Whether the preparation is complete and still counts."""
        return self.state is RecordState.COMPLETED and self.made_in(boot)

    def may_run(self, boot: str) -> bool:
        """Whether a container may have been given it in this boot; true if that is unknown."""
        return not self.boot or self.prepared_in(boot)

    def made_in(self, boot: str) -> bool:
        """Whether it is of this boot; true if a boot id is missing, because boots cannot be distinguished without."""
        return self.boot == boot or not boot or not self.boot

    def shown_state(self, boot: str) -> ClaimState:
        """The state that people are shown in this boot."""
        if not self.made_in(boot):
            return ClaimState.VOID
        return ClaimState.PREPARED if self.prepared_in(boot) else ClaimState.STARTED

    def same_allocation(self, devices: Sequence[RecordedDevice]) -> bool:
        """Whether these are the record's devices, however they were prepared."""
        return [device.allocated for device in self.devices] == [device.allocated for device in devices]

    def kept_by(self, newer: ClaimRecord) -> ClaimRecord:
        """``newer`` with the fields of other versions that this record of the same claim has."""
        unknown = {device.allocated: device.unknown for device in self.devices}
        devices = tuple(replace(device, unknown=unknown.get(device.allocated, {})) for device in newer.devices)
        return replace(newer, unknown=self.unknown, devices=devices)

    @property
    def holds(self) -> tuple[Hold, ...]:
        """The claim's holds on the node's devices, for the ledger."""
        return tuple(
            Hold(
                device.device,
                Door.DRA,
                str(self.claim),
                self.since,
                owner=self.claim.uid,
                share=device.share_id or "",
                admin=device.admin_access,
                within=device.within,
                pods=self.users,
                amounts=device.amounts,
                whole=device.whole,
                slices=device.slices,
            )
            for device in self.devices
        )

    @property
    def answer(self) -> tuple[PreparedDevice, ...]:
        """The kubelet's answer."""
        return tuple(device.answer for device in self.devices)


def check_size(record: ClaimRecord) -> None:
    """Raise ClaimError for a record that is larger than ``LARGEST``."""
    size = len(json.dumps(record_json(record), separators=(",", ":")))
    if size > LARGEST:
        raise ClaimError(
            f"claim {record.claim}: its record would have {size} bytes ({len(record.devices)} devices, a CDI file of "
            f"{len(record.spec)} characters, {len(record.users)} users); the limit is {LARGEST}; allocate fewer "
            "devices to one claim"
        )


def record_json(record: ClaimRecord) -> JsonObject:
    """The record's JSON form."""
    devices: list[Json] = [
        {
            **device.unknown,
            "request": device.request,
            "pool": device.pool,
            "device": device.device,
            "shareID": device.share_id,
            "adminAccess": device.admin_access,
            "within": list(device.within),
            "cdiDevices": list(device.cdi_devices),
            **({} if device.share_id is None else {"amounts": dict(device.amounts), "whole": dict(device.whole)}),
            **({} if device.slices is None else {"slices": list(device.slices)}),
            **({} if device.partition is None else {"partition": _partition_json(device.partition)}),
            **({} if device.interface is None else {"interface": to_data(device.interface)}),
        }
        for device in record.devices
    ]
    return {
        **record.unknown,
        "namespace": record.claim.namespace,
        "name": record.claim.name,
        "uid": record.claim.uid,
        "state": record.state.value,
        "boot": record.boot,
        "since": record.since,
        "devices": devices,
        "users": list(record.users),
        "spec": record.spec,
        **({} if record.metadata is None else {"metadata": to_data(record.metadata)}),
    }


_KNOWN = frozenset(("namespace", "name", "uid", "state", "boot", "since", "devices", "users", "spec", "metadata"))
_KNOWN_OF_DEVICE = frozenset(
    ("request", "pool", "device", "shareID", "adminAccess", "within", "cdiDevices", "amounts", "whole")
    + ("slices", "partition", "interface")
)


def record_of(data: Json, uid: str) -> ClaimRecord:
    """The record in ``data``, which must be that of ``uid``; raises ValueError that names the field."""
    if not isinstance(data, dict):
        raise ValueError("a record must be an object")  # noqa: TRY004 - one exception type for every kind of damage
    claim = ClaimReference(_text(data, "namespace"), _text(data, "name"), _text(data, "uid"))
    if claim.uid != uid:
        raise ValueError(f"uid is {shown(claim.uid)}, the file is that of {uid!r}")
    since = data.get("since", 0.0)
    if isinstance(since, bool) or not isinstance(since, int | float):
        raise ValueError(f"since is {shown(since)} but must be a number")  # noqa: TRY004 - as above
    return ClaimRecord(
        claim,
        _state(data),
        boot=_text(data, "boot"),
        since=float(since),
        devices=tuple(_device(item) for item in _list(data, "devices")),
        users=_texts(data, "users"),
        spec=_text(data, "spec"),
        metadata=_metadata(data),
        unknown={name: item for name, item in data.items() if name not in _KNOWN},
    )


def _state(data: JsonObject) -> RecordState:
    found = _text(data, "state")
    if found not in set(RecordState):
        raise ValueError(f"state is {shown(found)}, must be one of {', '.join(RecordState)}")
    return RecordState(found)


def _device(item: Json) -> RecordedDevice:
    if not isinstance(item, dict):
        raise ValueError("every item of devices must be an object")  # noqa: TRY004 - as above
    share = item.get("shareID")
    return RecordedDevice(
        request=_text(item, "request"),
        pool=_text(item, "pool"),
        device=_text(item, "device"),
        share_id=None if share is None else _text(item, "shareID"),
        admin_access=item.get("adminAccess") is True,
        within=_texts(item, "within"),
        cdi_devices=_texts(item, "cdiDevices"),
        amounts=_amounts(item, "amounts"),
        whole=_amounts(item, "whole"),
        slices=_slices(item),
        partition=_partition(item),
        interface=_interface(item),
        unknown={name: each for name, each in item.items() if name not in _KNOWN_OF_DEVICE},
    )


def _text(data: JsonObject, name: str) -> str:
    found = data.get(name, "")
    if not isinstance(found, str):
        raise ValueError(f"{name} is {shown(found)} but must be a string")  # noqa: TRY004 - as above
    return found


def _list(data: JsonObject, name: str) -> Sequence[Json]:
    found = data.get(name, [])
    if not isinstance(found, list):
        raise ValueError(f"{name} is {shown(found)} but must be a list")  # noqa: TRY004 - as above
    return found


def _texts(data: JsonObject, name: str) -> tuple[str, ...]:
    items = _list(data, name)
    texts = tuple(item for item in items if isinstance(item, str))
    if len(texts) != len(items):
        raise ValueError(f"{name} must contain only strings")
    return texts


def _amounts(data: JsonObject, name: str) -> Amounts:
    found = data.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} is {shown(found)} but must be an object")  # noqa: TRY004 - as above
    for key, amount in found.items():
        if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
            raise ValueError(f"{name}.{key} is {shown(amount)} but must be an amount of 0 or more")
    return tuple(sorted((key, amount) for key, amount in found.items() if isinstance(amount, int)))


def _slices(item: JsonObject) -> tuple[int, int] | None:
    if item.get("slices") is None:
        return None
    start, size = ([*_list(item, "slices"), None, None])[:2]
    if type(start) is not int or type(size) is not int:
        raise ValueError(f"slices is {shown(item['slices'])} but must be a first slice and a number of slices")
    return start, size


def _partition_json(shape: PartitionShape) -> JsonObject:
    """The partition to make; what it really has is for the driver to say."""
    return {"profile": shape.profile, "profileID": shape.profile_id, "start": shape.start, "size": shape.size}


def _partition(item: JsonObject) -> PartitionShape | None:
    found = item.get("partition")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ValueError(f"partition is {shown(found)} but must be an object")  # noqa: TRY004 - as above
    numbers = [found.get(name) for name in ("profileID", "start", "size")]
    if any(type(each) is not int for each in numbers):
        raise ValueError(f"partition is {shown(found)}: profileID, start and size must be numbers")
    number, start, size = (each for each in numbers if isinstance(each, int))
    return PartitionShape(_text(found, "profile"), number, start, size)


def _metadata(data: JsonObject) -> ClaimMetadata | None:
    found = data.get("metadata")
    return None if found is None else from_data(ClaimMetadata, found)


def _interface(item: JsonObject) -> MovableInterface | None:
    found = item.get("interface")
    return None if found is None else from_data(MovableInterface, found)
