"""The kubelet's own records of claims (``dra_manager_state``, ``dra_health_state``): text to values and back.

The node driver reads the first: the kubelet enters a claim before it asks a driver to prepare it and strikes it out
after the driver has released it, so the file proves which claims it still knows. The sandbox's kubelet reads and writes
both. Invariants: whatever is encoded here a real kubelet accepts; what a real kubelet refuses is refused here, in its
words. A missing list and an empty one are kept apart (``None`` and ``()``). Pure: files are the caller's.

Whether a claim is prepared is not in the file. Rules and texts: kubelet 1.36; 1.34 and 1.35 write the same.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from node.kubelet import gojson
from node.kubelet.gojson import CorruptedStateError, FieldPlace, JsonError
from node.kubelet.gojson import Value as JsonTree
from node.values import Value, value

FILE_NAME = "dra_manager_state"
HEALTH_FILE_NAME = "dra_health_state"
"""Names of the files in the kubelet's root."""

_KIND = "DRACheckpoint"
_API_VERSION = "checkpoint.dra.kubelet.k8s.io/v1"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@value
class DeviceState(Value):
    """One device of a driver's answer, as the kubelet keeps it."""

    pool: str
    device: str
    share_id: str | None = None
    requests: tuple[str, ...] | None = None
    cdi_devices: tuple[str, ...] | None = None


@value
class ClaimInfo(Value):
    """A claim the kubelet knows: the pods that use it, and per driver its devices (None before its first answer)."""

    uid: str
    name: str
    namespace: str
    pods: tuple[str, ...] | None = ()
    drivers: Mapping[str, tuple[DeviceState, ...] | None] | None = None


@value
class DraState(Value):
    """The content of ``dra_manager_state``; None when it was never filled."""

    claims: tuple[ClaimInfo, ...] | None = None


@value
class DeviceHealth(Value):
    """A device's health as the kubelet last heard it.

    ``health``: Healthy, Unhealthy or Unknown. ``updated``: nanoseconds since the epoch, by the kubelet's clock.
    ``timeout``: nanoseconds.
    """

    pool: str
    device: str
    health: str
    updated: int = 0
    timeout: int = 0
    message: str = ""


HealthByDriver = Mapping[str, tuple[DeviceHealth, ...]]
"""The content of ``dra_health_state``."""


def decode(text: bytes) -> DraState:
    """The claims in ``text``, as a kubelet reads them; ``{}`` is a file that was never filled.

    Raises ``JsonError`` and ``CorruptedStateError``.
    """
    data = _inner(DraState())
    found = zlib.crc32(data.encode())
    for name, member in gojson.members(gojson.parse(text), FieldPlace("", "state.Checkpoint")) or ():
        if name.casefold() == "data" and member is not None:
            data = gojson.string(member, FieldPlace("Checkpoint.Data", "string"))
        elif name.casefold() == "checksum" and member is not None:
            found = _unsigned32(member, FieldPlace("Checkpoint.Checksum", "uint32"))
    expected = zlib.crc32(data.encode())
    if expected != found:
        raise CorruptedStateError(expected, found, _damaged_content(data))
    return _read_data(gojson.parse(data.encode()))


def encode(state: DraState) -> bytes:
    """The file's text: one line without a line feed, as a kubelet writes it."""
    data = _inner(state)
    return _go_json({"Data": data, "Checksum": zlib.crc32(data.encode())}).encode()


def decode_health(text: bytes) -> HealthByDriver:
    """The health of every driver's devices; raises ``JsonError`` (the kubelet then starts without)."""
    drivers = gojson.members(gojson.parse(text), FieldPlace("", "state.DevicesHealthMap")) or ()
    return {driver: _read_driver_health(member) for driver, member in drivers}


def encode_health(health: HealthByDriver) -> bytes:
    """The text of ``dra_health_state``, as a kubelet writes it."""
    drivers = {
        driver: {"Devices": _sorted({f"{each.pool}/{each.device}": _health_json(each) for each in devices})}
        for driver, devices in health.items()
    }
    return _go_json(_sorted(drivers)).encode()


def _damaged_content(data: str) -> DraState | None:
    try:
        return _read_data(gojson.parse(data.encode()))
    except JsonError:
        return None


def _read_data(tree: JsonTree) -> DraState:
    claims: tuple[ClaimInfo, ...] | None = None
    for name, member in gojson.members(tree, FieldPlace("", "state.CheckpointData")) or ():
        key = name.casefold()
        if key in ("kind", "apiversion"):
            gojson.string(member, FieldPlace(f"CheckpointData.{name}", "string"))
        elif key == "claiminfostatelist":
            place = FieldPlace("CheckpointData.ClaimInfoStateList", "state.ClaimInfoStateList")
            items = gojson.elements(member, place)
            claims = None if items is None else tuple(_read_claim(item, place) for item in items)
    return DraState(claims)


def _read_claim(tree: JsonTree, outer: FieldPlace) -> ClaimInfo:
    texts = {"claimuid": "", "claimname": "", "namespace": ""}
    types = {"claimuid": "types.UID"}
    pods: tuple[str, ...] | None = None
    drivers: dict[str, tuple[DeviceState, ...] | None] | None = None
    path = "ClaimInfoState.ClaimInfoStateList."
    for name, member in gojson.members(tree, outer.of("state.ClaimInfoState")) or ():
        key = name.casefold()
        if key in texts:
            if member is not None:
                texts[key] = gojson.string(member, FieldPlace(path + name, types.get(key, "string")))
        elif key == "poduids":
            pairs = gojson.members(member, FieldPlace(path + "PodUIDs", "sets.Set[string]"))
            pods = None if pairs is None else tuple(dict.fromkeys(pod for pod, _ in pairs))
        elif key == "driverstate":
            pairs = gojson.members(member, FieldPlace(path + "DriverState", "map[string]state.DriverState"))
            drivers = None if pairs is None else {driver: _read_driver(state) for driver, state in pairs}
    return ClaimInfo(texts["claimuid"], texts["claimname"], texts["namespace"], pods, drivers)


def _read_driver(tree: JsonTree) -> tuple[DeviceState, ...] | None:
    devices: tuple[DeviceState, ...] | None = None
    path = "ClaimInfoStateList.DriverState"
    for name, member in gojson.members(tree, FieldPlace(f"ClaimInfoState.{path}", "state.DriverState")) or ():
        if name.casefold() == "devices":
            place = FieldPlace(f"DriverState.{path}.Devices", "[]state.Device")
            items = gojson.elements(member, place)
            devices = None if items is None else tuple(_read_device(item, place) for item in items)
    return devices


def _read_device(tree: JsonTree, outer: FieldPlace) -> DeviceState:
    texts = {"poolname": "", "devicename": ""}
    share: str | None = None
    lists: dict[str, tuple[str, ...] | None] = {"requestnames": None, "cdideviceids": None}
    path = "Device.ClaimInfoStateList.DriverState.Devices."
    for name, member in gojson.members(tree, outer.of("state.Device")) or ():
        key = name.casefold()
        if key in texts:
            if member is not None:
                texts[key] = gojson.string(member, FieldPlace(path + name, "string"))
        elif key == "shareid":
            share = None if member is None else gojson.string(member, FieldPlace(path + name, "types.UID"))
        elif key in lists:
            place = FieldPlace(path + name, "[]string")
            items = gojson.elements(member, place)
            lists[key] = None if items is None else tuple(gojson.string(item, place.of("string")) for item in items)
    return DeviceState(texts["poolname"], texts["devicename"], share, lists["requestnames"], lists["cdideviceids"])


def _read_driver_health(tree: JsonTree) -> tuple[DeviceHealth, ...]:
    found: list[DeviceHealth] = []
    for name, member in gojson.members(tree, FieldPlace("", "state.DriverHealthState")) or ():
        if name.casefold() == "devices":
            place = FieldPlace("DriverHealthState.Devices", "map[string]state.DeviceHealth")
            found = [_read_health(item) for _, item in gojson.members(member, place) or ()]
    return tuple(found)


def _read_health(tree: JsonTree) -> DeviceHealth:
    texts = {"poolname": "", "devicename": "", "health": "", "message": ""}
    updated, timeout = 0, 0
    path = "DeviceHealth.Devices."
    for name, member in gojson.members(tree, FieldPlace("DriverHealthState.Devices", "state.DeviceHealth")) or ():
        key = name.casefold()
        if key in texts and member is not None:
            kind = "state.DeviceHealthStatus" if key == "health" else "string"
            texts[key] = gojson.string(member, FieldPlace(path + name, kind))
        elif key == "lastupdated" and member is not None:
            updated = _nanoseconds(gojson.string(member, FieldPlace(path + name, "time.Time")))
        elif key == "healthchecktimeout" and member is not None:
            timeout = _duration(member, FieldPlace(path + name, "time.Duration"))
    return DeviceHealth(texts["poolname"], texts["devicename"], texts["health"], updated, timeout, texts["message"])


def _unsigned32(tree: JsonTree, place: FieldPlace) -> int:
    number = gojson.unsigned(tree, place)
    if number >= 1 << 32:
        place.refuse(tree)
    return number


def _duration(tree: JsonTree, place: FieldPlace) -> int:
    if not isinstance(tree, gojson.Number) or not re.fullmatch(r"-?\d{1,19}", tree):
        place.refuse(tree)
    return int(tree)


def _nanoseconds(text: str) -> int:
    match = _TIME.fullmatch(text)
    try:
        if match is None:
            raise ValueError(text)
        zone = "+00:00" if match[3] == "Z" else match[3]
        seconds = (datetime.fromisoformat(match[1] + zone) - _EPOCH) // timedelta(seconds=1)
    except ValueError as error:
        raise JsonError(
            f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}" as "2006"'
        ) from error
    return seconds * 10**9 + int((match[2] or "").ljust(9, "0"))


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    moment = (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{moment}{fraction}Z"


def _inner(state: DraState) -> str:
    claims = None if state.claims is None else [_claim_json(claim) for claim in state.claims]
    return _go_json({"kind": _KIND, "apiVersion": _API_VERSION, "ClaimInfoStateList": claims})


def _claim_json(claim: ClaimInfo) -> dict[str, object]:
    pods = None if claim.pods is None else _sorted({pod: {} for pod in claim.pods})
    drivers = None
    if claim.drivers is not None:
        drivers = _sorted(
            {
                driver: {"Devices": None if devices is None else [_device_json(device) for device in devices]}
                for driver, devices in claim.drivers.items()
            }
        )
    return {
        "ClaimUID": claim.uid,
        "ClaimName": claim.name,
        "Namespace": claim.namespace,
        "PodUIDs": pods,
        "DriverState": drivers,
    }


def _device_json(device: DeviceState) -> dict[str, object]:
    return {
        "PoolName": device.pool,
        "DeviceName": device.device,
        "ShareID": device.share_id,
        "RequestNames": device.requests,
        "CDIDeviceIDs": device.cdi_devices,
    }


def _health_json(health: DeviceHealth) -> dict[str, object]:
    return {
        "PoolName": health.pool,
        "DeviceName": health.device,
        "Health": health.health,
        "LastUpdated": _time(health.updated),
        "HealthCheckTimeout": health.timeout,
        "Message": health.message,
    }


def _sorted(members: Mapping[str, object]) -> dict[str, object]:
    # Go's encoder sorts the members of a map by the bytes of their names.
    return {name: members[name] for name in sorted(members, key=lambda name: name.encode("utf-8", "replace"))}


def _go_json(document: object) -> str:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":  # Go's encoder escapes these; they stand only in strings.
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace").decode()
