"""The entries of ``ResourceClaim.status.devices`` that ostler writes.

Pure. Each NIC gets one entry; its key is driver, pool, device and share id. Its ``data`` has facts of the host that no
attribute of a slice promises, as they were when the device was prepared.

The condition ``NetworkReady`` is true, and ``networkData`` has the interface's name and addresses, only while the
interface is in the pod. Otherwise it is false and the reason says why. After a restart it is unknown where an interface
is, until that is reported; a condition that is true stays true until then.

If a claim's parameters are refused, each of its devices gets the condition ``Ready`` false with the reason
``ParametersRefused``, and ``Ready`` true once the claim is prepared after all. The same happens if a partition of a GPU
cannot be made for it.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable
from copy import deepcopy

from driver.claims.model import PreparedDevice
from driver.devices.view import DoorView
from driver.parameters.decoding import API_VERSION
from kube.bodies import Json, JsonObject, object_at, one_line, text_at
from node.interfaces.model import AttachedInterface
from node.inventory.model import NIC_KINDS, Device, Version
from node.values import Value, value

PARAMETERS_REFUSED = "ParametersRefused"
FACTS = (
    *("driver", "eswitchMode", "firmwareVersion", "ifName", "linkType", "linkUp", "mtu", "pciAddress"),
    *("pfName", "pfPciAddress", "rdmaDevice", "sriovFunction", "vfIndex"),
)
"""Known attributes to put into ``data``."""
LONGEST_MESSAGE = 2048
"""Characters of a condition's message; the API accepts more, but nobody reads them."""
LONGEST_ADDRESS = 128
"""Bytes of ``hardwareAddress`` that the API accepts."""
MOST_ADDRESSES = 16
"""Addresses of an interface that the API accepts."""


@value
class InterfacesReport(Value):
    """Where the interfaces of a claim are: those in its pod, and why others could not be moved (empty if none failed).

    ``is_known``: false until the first report after a restart.
    """

    attached: tuple[AttachedInterface, ...] = ()
    problem: str = ""
    is_known: bool = True


UNREPORTED = InterfacesReport(is_known=False)


@value
class ClaimReport(Value):
    """The status that a claim should have.

    ``nics``: entries of its NICs. ``unconfirmed``: names of NICs whose interface may be in the pod already, so a stored
    entry that says so stays. ``problem``: why it cannot be prepared, with the condition's ``reason``; empty if it has
    been prepared since; None if it never had a problem.
    """

    nics: tuple[JsonObject, ...] = ()
    problem: str | None = None
    reason: str = PARAMETERS_REFUSED
    unconfirmed: frozenset[str] = frozenset()

    def entries(self, driver_name: str, claim: JsonObject) -> tuple[JsonObject, ...]:
        """The entries for the claim, which was just read."""
        ready = () if self.problem is None else ready_entries(driver_name, claim, self.problem, self.reason)
        stored = {_key(entry): entry for entry in _stored(claim)}
        nics = (
            _with_stored_network(entry, stored.get(_key(entry)))
            if text_at(entry, "device") in self.unconfirmed
            else entry
            for entry in self.nics
        )
        return (*ready, *nics)


def nic_entries(
    driver_name: str,
    devices: Iterable[PreparedDevice],
    view: DoorView,
    interfaces: InterfacesReport = UNREPORTED,
) -> tuple[JsonObject, ...]:
    """An entry, without times, for each of the devices that is a NIC: one per device, however many requests name it."""
    attached = {interface.device: interface for interface in interfaces.attached}
    entries: dict[tuple[str, str, str | None], JsonObject] = {}
    for prepared in devices:
        offered = view.device(prepared.device)
        if offered is None or offered.device.kind not in NIC_KINDS:
            continue
        entry: JsonObject = {"driver": driver_name, "pool": prepared.pool, "device": prepared.device}
        if prepared.share_id is not None:
            entry["shareID"] = prepared.share_id
        entry["conditions"] = [
            _condition("Ready", True, "DevicePrepared", "the device's nodes and variables are in the container"),
            _network_condition(offered.device, prepared.interface, attached.get(prepared.device), interfaces.problem),
        ]
        entry["data"] = {"apiVersion": API_VERSION, "kind": "NicStatus", **_facts(offered.device)}
        address = offered.device.text("mac")
        if prepared.device in attached:
            entry["networkData"] = network_data(attached[prepared.device])
        elif address and len(address.encode()) <= LONGEST_ADDRESS:
            entry["networkData"] = {"hardwareAddress": address}
        entries[prepared.pool, prepared.device, prepared.share_id] = entry
    return tuple(entries.values())


def network_data(interface: AttachedInterface) -> JsonObject:
    """The interface as ``networkData`` of resource.k8s.io/v1, in the API's limits and canonical forms."""
    found: JsonObject = {"interfaceName": interface.name}
    addresses: dict[Json, None] = {str(ipaddress.ip_interface(address)): None for address in interface.addresses}
    if addresses:
        found["ips"] = [*addresses][:MOST_ADDRESSES]
    if interface.hardware_address and len(interface.hardware_address.encode()) <= LONGEST_ADDRESS:
        found["hardwareAddress"] = interface.hardware_address
    return found


def ready_entries(
    driver_name: str, claim: JsonObject, problem: str = "", reason: str = PARAMETERS_REFUSED
) -> tuple[JsonObject, ...]:
    """An entry for each of our devices in the claim's allocation: ready, or the reason why it is not."""
    condition = (
        _condition("Ready", False, reason, one_line(problem, LONGEST_MESSAGE))
        if problem
        else _condition("Ready", True, "DevicePrepared", "the device's nodes and variables are in the container")
    )
    results = object_at(claim, "status", "allocation", "devices").get("results")
    entries: dict[tuple[str, ...], JsonObject] = {}
    for result in results if isinstance(results, list) else ():
        if text_at(result, "driver") != driver_name:
            continue
        names = ("driver", "pool", "device", "shareID")
        entry: JsonObject = {name: text_at(result, name) for name in names if text_at(result, name)}
        entries[_key(result)] = {**entry, "conditions": [condition]}
    return tuple(entries.values())


def merged(claim: JsonObject, driver_name: str, entries: Iterable[JsonObject], now: float) -> JsonObject | None:
    """The claim with these entries in its status; None if nothing needs to be written.

    Only entries for allocated devices go in, because the API server refuses all others. Our own entries for devices
    that are no longer allocated go out; those of other drivers stay. A condition whose status has not changed keeps its
    time.
    """
    results = object_at(claim, "status", "allocation", "devices").get("results")
    allocated = {_key(result) for result in results} if isinstance(results, list) else set()
    before = _stored(claim)
    old = {_key(entry): entry for entry in before}
    new = {_key(entry): _timed(entry, old.get(_key(entry)), now) for entry in entries if _key(entry) in allocated}
    kept = [entry for entry in before if _key(entry) not in new and _stays(entry, driver_name, allocated)]
    after: list[Json] = [*kept, *new.values()]
    if not new or (len(after) == len(before) and all(entry in before for entry in after)):
        return None
    changed = deepcopy(claim)
    status = changed["status"]
    assert isinstance(status, dict), "an allocation is part of the status"
    status["devices"] = after
    return changed


def _stored(claim: JsonObject) -> list[JsonObject]:
    stored = object_at(claim, "status").get("devices")
    return [entry for entry in stored if isinstance(entry, dict)] if isinstance(stored, list) else []


def _with_stored_network(entry: JsonObject, stored: JsonObject | None) -> JsonObject:
    """The entry with the stored condition ``NetworkReady`` and ``networkData``, if that condition is true."""
    conditions = (stored or {}).get("conditions")
    network = [
        {name: content for name, content in condition.items() if name != "lastTransitionTime"}
        for condition in (conditions if isinstance(conditions, list) else [])
        if isinstance(condition, dict)
        and text_at(condition, "type") == "NetworkReady"
        and text_at(condition, "status") == "True"
    ]
    if stored is None or not network:
        return entry
    own = entry["conditions"]
    others = [each for each in (own if isinstance(own, list) else []) if text_at(each, "type") != "NetworkReady"]
    return {**entry, "conditions": [*others, *network], "networkData": stored.get("networkData", {})}


def _stays(entry: JsonObject, driver_name: str, allocated: set[tuple[str, ...]]) -> bool:
    return entry.get("driver") != driver_name or _key(entry) in allocated


def _key(entry: Json) -> tuple[str, ...]:
    return tuple(text_at(entry, name) for name in ("driver", "pool", "device", "shareID"))


def _network_condition(device: Device, moved: str, attached: AttachedInterface | None, problem: str) -> JsonObject:
    """``moved``: the interface that is moved into the pod, empty for none; ``problem``: why that failed."""
    interface = moved or device.text("ifName")
    if attached is not None:
        text = f"the interface is in the pod as {attached.name}"
        return _condition("NetworkReady", True, "NetworkDeviceReady", text)
    if moved and problem:
        return _condition("NetworkReady", False, "InterfaceMoveFailed", one_line(problem, LONGEST_MESSAGE))
    if moved:
        text = f"{interface} is in the node's network namespace; ostler moves it when the pod's sandbox starts"
        return _condition("NetworkReady", False, "InterfaceOnNode", text)
    if interface:
        text = f"{interface} stays in the node's network namespace: the device's rule does not say moveInterface"
        return _condition("NetworkReady", False, "InterfaceNotMoved", text)
    text = f"the device has no network interface that could be moved (driver {device.text('driver') or 'none'})"
    return _condition("NetworkReady", False, "NoInterface", text)


def _condition(kind: str, status: bool, reason: str, message: str) -> JsonObject:
    return {"type": kind, "status": str(status), "reason": reason, "message": message}


def _facts(device: Device) -> JsonObject:
    found: JsonObject = {}
    for name in FACTS:
        content = device.pci_address if name == "pciAddress" else device.attribute(name)
        if content is not None:
            found[name] = str(content) if isinstance(content, Version) else content
    return found


def _timed(entry: JsonObject, old: JsonObject | None, now: float) -> JsonObject:
    """The entry with a time in each condition: the old entry's time if the status is the same."""
    conditions = entry["conditions"]
    earlier = (old or {}).get("conditions")
    known = {text_at(each, "type"): each for each in earlier} if isinstance(earlier, list) else {}
    timed: list[Json] = []
    for condition in conditions if isinstance(conditions, list) else []:
        before = known.get(text_at(condition, "type"), {})
        same = text_at(before, "status") == text_at(condition, "status")
        time = text_at(before, "lastTransitionTime") if same else ""
        timed.append({**object_at(condition), "lastTransitionTime": time or _timestamp(now)})
    return {**entry, "conditions": timed}


def _timestamp(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
