"""Reads from a claim, as the API server returns it, the part that concerns this driver.

The API server has validated the object, so a wrong type here is a defect somewhere and not a user's mistake. It still
becomes an error that names the field, and never a crash. Everything that goes from here into files, variables and
messages is bounded: names are checked; annotations, which the API server does not check, are used only if they are
valid; of any other value, messages show an excerpt.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from driver.claims.model import (
    AllocatedConfig,
    AllocatedDevice,
    Allocation,
    ClaimError,
    ClaimReference,
    ConfigSource,
    DeviceToleration,
)
from driver.devices.shares import consumed
from driver.names import Peer
from kube.bodies import Json, JsonObject, object_at, one_line, text_at
from node.sharing import Amounts
from scheduling.api.excerpts import shown
from scheduling.api.labels import SUBDOMAIN_BYTES, label_faults, subdomain_faults

_RESULTS = "status.allocation.devices.results"
_CONFIGS = "status.allocation.devices.config"
_UID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_NAME = re.compile(rf"[!-~]{{1,{SUBDOMAIN_BYTES}}}")
"""Valid names of requests, pools, devices and shares; the API server is stricter, with other rules for each kind."""
_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"


def is_uid(text: str) -> bool:
    """Whether this can be a claim's UID, and so a part of file names and CDI names."""
    return _UID.fullmatch(text) is not None


def check_reference(claim: ClaimReference) -> None:
    """Raise ClaimError unless the claim's names are valid; an empty name is an unknown one.

    The UID becomes part of file names and CDI names, the claim's name part of variable names.
    """
    for field, text, faults in (("namespace", claim.namespace, label_faults), ("name", claim.name, subdomain_faults)):
        if text and (found := faults(text)):
            raise ClaimError(f"claim's {field} {shown(text)} {found[0]}")
    if not is_uid(claim.uid):
        raise ClaimError(
            f"claim {claim}: uid {shown(claim.uid)} is not valid: use at most 128 letters and digits, and . _ - "
            "between them"
        )


def allocation_of(
    body: JsonObject | None, claim: ClaimReference, driver: str, peers: Collection[Peer] = ()
) -> Allocation:
    """The devices of ``driver`` that the claim was allocated, with its configurations and those for ``peers``.

    Raises ClaimError if the claim does not exist, is another claim of the same name, has none of our devices, is
    reserved for nobody, or has a field of a wrong type.
    """
    if body is None:
        raise ClaimError(f"claim {claim} does not exist")
    uid = text_at(body, "metadata", "uid")
    if uid != claim.uid:
        raise ClaimError(
            f"claim {claim} was replaced by another of the same name: its uid is {one_line(uid, 64)}, the kubelet "
            f"asked for {claim.uid}"
        )
    if not object_at(body, "status", "allocation"):
        raise ClaimError(f"claim {claim} is not allocated")
    devices = allocated_devices(body, driver)
    if not devices:
        raise ClaimError(f"claim {claim}: {_RESULTS} has no device of driver {driver}")
    users = _users(body)
    if not users:
        raise ClaimError(f"claim {claim} is not reserved for any pod: status.reservedFor is empty")
    return Allocation(claim, devices, _configs(body, driver, peers), users)


def pod_claim_name(body: JsonObject | None) -> str:
    """The pod's own name for a claim made from its template, empty for any other claim.

    Anybody who may change the claim can write the annotation that has this name, so a value that is not a valid name is
    ignored.
    """
    name = text_at(body, "metadata", "annotations", _POD_CLAIM_NAME)
    return "" if label_faults(name) else name


def name_in_pod(body: JsonObject | None, claim: ClaimReference) -> str:
    """The pod's own name for a claim made from its template, else the claim's name."""
    return pod_claim_name(body) or claim.name


def still_here(body: JsonObject | None, claim: ClaimReference, driver: str, pool: str) -> bool:
    """Whether the API server still has this very claim, reserved and with devices of this node."""
    try:
        allocation = allocation_of(body, claim, driver)
    except ClaimError:
        return False
    return any(device.pool == pool for device in allocation.devices)


def allocated_devices(body: JsonObject, driver: str) -> tuple[AllocatedDevice, ...]:
    """The devices of ``driver`` that the claim was allocated, reserved or not; raises ClaimError."""
    found = []
    results = object_at(body, "status", "allocation", "devices").get("results")
    for index, result in enumerate(_items(results, _RESULTS)):
        if result.get("driver") != driver:
            continue
        place = f"{_RESULTS}[{index}]"
        found.append(
            AllocatedDevice(
                request=_text(result, "request", place),
                pool=_text(result, "pool", place),
                device=_text(result, "device", place),
                share_id=_text(result, "shareID", place) if result.get("shareID") is not None else None,
                admin_access=result.get("adminAccess") is True,
                amounts=_amounts(result, driver, place),
                tolerations=tuple(
                    DeviceToleration(*(text_at(each, name) for name in ("key", "operator", "value", "effect")))
                    for each in _items(result.get("tolerations"), f"{place}.tolerations")
                ),
            )
        )
    return tuple(found)


def _users(body: JsonObject) -> tuple[str, ...]:
    found = []
    for index, user in enumerate(_items(object_at(body, "status").get("reservedFor"), "status.reservedFor")):
        uid = text_at(user, "uid")
        if not is_uid(uid):
            raise ClaimError(f"status.reservedFor[{index}].uid: {shown(user.get('uid'))} must be a UID")
        found.append(uid)
    return tuple(found)


def _configs(body: JsonObject, driver: str, peers: Collection[Peer]) -> tuple[AllocatedConfig, ...]:
    found = []
    configs = object_at(body, "status", "allocation", "devices").get("config")
    for index, config in enumerate(_items(configs, _CONFIGS)):
        opaque = object_at(config, "opaque")
        peer = next((peer for peer in peers if opaque.get("driver") == peer.value != driver), None)
        if opaque.get("driver") != driver and peer is None:
            continue
        place = f"{_CONFIGS}[{index}]"
        requests = config.get("requests") or []
        if not isinstance(requests, list) or not all(isinstance(name, str) for name in requests):
            raise ClaimError(f"{place}.requests: {shown(requests)} must be a list of names")
        source = ConfigSource.CLASS if config.get("source") == ConfigSource.CLASS else ConfigSource.CLAIM
        parameters = opaque.get("parameters")
        if not isinstance(parameters, dict):
            raise ClaimError(f"{place}.opaque.parameters: {shown(parameters)} must be an object")
        names = tuple(name for name in requests if isinstance(name, str))
        found.append(AllocatedConfig(source, names, parameters, f"{place}.opaque.parameters", peer))
    return tuple(found)


def _amounts(result: JsonObject, driver: str, place: str) -> Amounts:
    """The capacity that a share takes; empty for a device that was allocated whole."""
    found = result.get("consumedCapacity")
    if found is None:
        return ()
    if not isinstance(found, dict):
        raise ClaimError(f"{place}.consumedCapacity: {shown(found)} must be an object")
    if result.get("shareID") is None:
        return ()
    try:
        return consumed({name: str(amount) for name, amount in found.items()}, driver)
    except ValueError as error:
        raise ClaimError(f"{place}.consumedCapacity.{error}") from error


def _items(found: Json, place: str) -> list[JsonObject]:
    if found is None:
        return []
    if not isinstance(found, list):
        raise ClaimError(f"{place}: {shown(found)} must be a list")
    items = [item for item in found if isinstance(item, dict)]
    if len(items) != len(found):
        raise ClaimError(f"{place}: every item must be an object")
    return items


def _text(item: JsonObject, name: str, place: str) -> str:
    found = item.get(name)
    if not isinstance(found, str) or not found:
        raise ClaimError(f"{place}.{name}: {shown(found)} must be a string, and not an empty one")
    if not _NAME.fullmatch(found):
        raise ClaimError(f"{place}.{name}: {shown(found)} must be a name of at most {SUBDOMAIN_BYTES} ASCII characters")
    return found
