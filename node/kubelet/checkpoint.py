"""The kubelet's own record of device plugin allocations (``kubelet_internal_checkpoint``): text to values and back.

Two parts read it: the ledger (the file alone knows ordinary init containers, podresources does not show them) and the
sandbox's kubelet, which also writes it. Invariants: whatever ``encode`` writes a real kubelet accepts; what a real
kubelet refuses is refused here. A missing member and ``null`` differ in the checksum, so they are kept apart (``()``
and ``None``). Pure: reading and writing files is the caller's.

The checksum is made from a printed form of the data (``node.kubelet.godump``); that form is rebuilt in ``_dump``. Rules
and texts: kubelet 1.36; the others read and write the same.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Mapping

from node import values
from node.kubelet import gojson
from node.kubelet.godump import as_bytes, fnv32, listed, mapped
from node.kubelet.gojson import CorruptedStateError, FieldPlace, KubeletStateError, Value

FILE_NAME = "kubelet_internal_checkpoint"
"""Name of the file in the kubelet's device plugin folder."""

NO_NUMA = -1
"""The bucket of devices that have no NUMA node."""

Ids = tuple[str, ...] | None


class CheckpointNotFoundError(KubeletStateError):
    """There is no such file."""

    def __init__(self) -> None:
        super().__init__("checkpoint is not found")


@values.quick
@values.value
class CheckpointEntry(values.Value):
    """What one container holds of one resource: ids by NUMA node (``NO_NUMA`` for none), and the plugin's answer.

    ``response`` is a serialized ``v1beta1.ContainerAllocateResponse``. An id on several nodes is in each bucket.
    """

    pod_uid: str
    container: str
    resource: str
    devices: Mapping[int, Ids] | None
    response: bytes | None

    @property
    def ids(self) -> frozenset[str]:
        """All ids, whatever their node."""
        return frozenset(name for bucket in (self.devices or {}).values() for name in bucket or ())


@values.value
class Checkpoint(values.Value):
    """The content of the file: what containers hold, and the healthy ids of every registered resource."""

    entries: tuple[CheckpointEntry, ...] | None = None
    registered: Mapping[str, Ids] | None = None

    def held(self) -> dict[tuple[str, str, str], CheckpointEntry]:
        """Entries by (pod UID, container, resource); of doubles the later one wins, as in the kubelet."""
        return {(entry.pod_uid, entry.container, entry.resource): entry for entry in self.entries or ()}


def decode(text: bytes) -> Checkpoint:
    """The checkpoint in ``text``, as a kubelet reads it.

    Raises ``JsonError`` (no JSON, or members of a wrong type; the pre-1.20 form is one of these) and
    ``CorruptedStateError`` (the checksum does not fit).
    """
    checkpoint, found = Checkpoint((), {}), 0
    for name, value in gojson.members(gojson.parse(text), FieldPlace("", "checkpoint.Data")) or ():
        if name.casefold() == "data":
            checkpoint = _read_data(value, checkpoint)
        elif name.casefold() == "checksum":
            found = gojson.unsigned(value, FieldPlace("Data.Checksum", "checksum.Checksum"))
    expected = checksum(checkpoint)
    if expected != found:
        raise CorruptedStateError(expected, found, checkpoint)
    return checkpoint


def encode(checkpoint: Checkpoint) -> bytes:
    """The file's text: one line without a line feed, as a kubelet writes it."""
    data = {
        "PodDeviceEntries": None
        if checkpoint.entries is None
        else [_entry_json(entry) for entry in checkpoint.entries],
        "RegisteredDevices": _sorted_map(checkpoint.registered),
    }
    text = json.dumps(
        {"Data": data, "Checksum": checksum(checkpoint)}, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    for character in "<>&\u2028\u2029":  # Go's encoder escapes these; they stand only in strings.
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace")


def checksum(checkpoint: Checkpoint) -> int:
    """FNV-1a, 32 bit, of the printed form of the data; list order counts."""
    return fnv32(_dump(checkpoint))


def _read_data(value: Value, before: Checkpoint) -> Checkpoint:
    entries, registered = before.entries, before.registered
    for name, member in gojson.members(value, FieldPlace("Data.Data", "checkpoint.checkpointData")) or ():
        if name.casefold() == "poddeviceentries":
            place = FieldPlace("checkpointData.Data.PodDeviceEntries", "[]checkpoint.PodDevicesEntry")
            items = gojson.elements(member, place)
            entries = None if items is None else tuple(_read_entry(item, place) for item in items)
        elif name.casefold() == "registereddevices":
            place = FieldPlace("checkpointData.Data.RegisteredDevices", "map[string][]string")
            pairs = gojson.members(member, place)
            registered = None if pairs is None else {key: _read_ids(item, place) for key, item in pairs}
    return Checkpoint(entries, registered)


def _read_entry(value: Value, list_place: FieldPlace) -> CheckpointEntry:
    texts = {"poduid": "", "containername": "", "resourcename": ""}
    devices: dict[int, Ids] | None = None
    response: bytes | None = None
    path = "PodDevicesEntry.Data.PodDeviceEntries."
    for name, member in gojson.members(value, list_place.of("checkpoint.PodDevicesEntry")) or ():
        key = name.casefold()
        if key in texts and member is not None:
            texts[key] = gojson.string(member, FieldPlace(path + name, "string"))
        elif key == "deviceids":
            place = FieldPlace(path + name, "checkpoint.DevicesPerNUMA")
            pairs = gojson.members(member, place)
            devices = None if pairs is None else {gojson.integer_key(k, place): _read_ids(v, place) for k, v in pairs}
        elif key == "allocresp":
            response = gojson.blob(member, FieldPlace(path + name, "[]uint8"))
    return CheckpointEntry(texts["poduid"], texts["containername"], texts["resourcename"], devices, response)


def _read_ids(value: Value, place: FieldPlace) -> Ids:
    items = gojson.elements(value, place.of("[]string"))
    return None if items is None else tuple(gojson.string(item, place.of("string")) for item in items)


def _entry_json(entry: CheckpointEntry) -> dict[str, object]:
    response = None if entry.response is None else binascii.b2a_base64(entry.response, newline=False).decode()
    return {
        "PodUID": entry.pod_uid,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": _sorted_map(entry.devices),
        "AllocResp": response,
    }


def _sorted_map(values: Mapping[int, Ids] | Mapping[str, Ids] | None) -> object:
    # Go's encoder sorts the members of a map by the bytes of their names, numbers too.
    if values is None:
        return None
    named = {str(name): ids for name, ids in values.items()}
    return {name: named[name] for name in sorted(named, key=as_bytes)}


def _dump(checkpoint: Checkpoint) -> str:
    entries = listed(None if checkpoint.entries is None else map(_dump_entry, checkpoint.entries))
    registered = checkpoint.registered
    pairs = None if registered is None else [(k, listed(registered[k])) for k in sorted(registered, key=as_bytes)]
    return (
        "(checkpoint.checkpointData){"
        f"PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} "
        f"RegisteredDevices:(map[string][]string){mapped(pairs)}}}"
    )


def _dump_entry(entry: CheckpointEntry) -> str:
    devices = None if entry.devices is None else [(str(n), listed(ids)) for n, ids in sorted(entry.devices.items())]
    response = listed(None if entry.response is None else map(str, entry.response))
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container} "
        f"ResourceName:(string){entry.resource} DeviceIDs:(checkpoint.DevicesPerNUMA){mapped(devices)} "
        f"AllocResp:([]uint8){response}}}"
    )
