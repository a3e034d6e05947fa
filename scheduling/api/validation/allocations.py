"""Rules for the status of a claim: allocation and reservations (KEP-4381), state of its devices (KEP-4817)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from scheduling.api.labels import size
from scheduling.api.validation.bounds import distinct, listed
from scheduling.api.validation.cause import Cause, forbidden, invalid, not_supported, required, too_long
from scheduling.api.validation.claims import ADMIN_NEEDED
from scheduling.api.validation.conditions import conditions
from scheduling.api.validation.configs import configuration, json_object
from scheduling.api.validation.decoding import same
from scheduling.api.validation.devices import binding
from scheduling.api.validation.features import identity, results_of
from scheduling.api.validation.names import driver, label, pool, uuid
from scheduling.api.validation.nodes import node_selector
from scheduling.api.validation.requests import RequestNames
from scheduling.api.validation.shapes import ALLOCATION

_RESULTS: Final = 32
_CONFIGS: Final = 64  # of classes and of the claim
_RESERVATIONS: Final = 256
_DATA_BYTES: Final = 10 * 1024
_INTERFACE_BYTES: Final = 256
_HARDWARE_ADDRESS_BYTES: Final = 128
_ADDRESSES: Final = 16
_SOURCES: Final = ("FromClaim", "FromClass")

Status = Mapping[str, Any]


def claim_status(
    status: Status, old: Status, requests: Sequence[Mapping[str, Any]], *, deleted: bool
) -> Iterator[Cause]:
    """The status that replaces `old`. `requests`: the claim's; `deleted`: its deletion has begun."""
    yield from _reservations(status, old, deleted=deleted)
    allocation = status.get("allocation")
    allocated = {identity(result) for result in results_of({"status": status})}

    def state(entry: Mapping[str, Any], path: str) -> Iterator[Cause]:
        yield from _device_state(entry, path)
        if identity(entry) not in allocated:
            yield invalid(path, _described(entry), "must be a device that this claim has been given")

    yield from distinct(status.get("devices", []), None, "status.devices", state, key=identity)
    if allocation is None:
        return
    if "allocation" not in old:
        yield from _allocation(allocation, "status.allocation", RequestNames.of(requests))
    elif not same(allocation, old["allocation"], ALLOCATION):
        yield invalid("status.allocation", "the new one", "must stay as it is; remove it before another is written")


def admin_result(claim: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    """The first result with admin access, if there was none before and the namespace has not the right."""
    if any(result.get("adminAccess") for result in results_of(old)):
        return
    for index, result in enumerate(results_of(claim)):
        if result.get("adminAccess"):
            yield forbidden(f"status.allocation.devices.results[{index}].adminAccess", ADMIN_NEEDED)
            return


def _described(device: Mapping[str, Any]) -> str:
    return "/".join(part for part in identity(device) if part)


def _reservations(status: Status, old: Status, *, deleted: bool) -> Iterator[Cause]:
    reserved, path = status.get("reservedFor", []), "status.reservedFor"

    def consumer(entry: Mapping[str, Any], at: str) -> Iterator[Cause]:
        for field in ("resource", "name", "uid"):
            if not entry.get(field):
                yield required(f"{at}.{field}")

    yield from distinct(reserved, _RESERVATIONS, path, consumer, key=lambda entry: entry.get("uid", ""))
    if not reserved:
        return
    if "allocation" not in status:
        yield forbidden(path, "must be empty while the claim is not allocated")
    elif deleted and not set(map(_filled, reserved)) <= set(map(_filled, old.get("reservedFor", []))):
        yield forbidden(path, "must get no new entries once the claim is being deleted")


def _filled(consumer: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((field, value) for field, value in consumer.items() if value)


def _allocation(allocation: Mapping[str, Any], path: str, names: RequestNames) -> Iterator[Cause]:
    devices = allocation.get("devices", {})

    def result(entry: Mapping[str, Any], at: str) -> Iterator[Cause]:
        yield from names.judge(entry.get("request", ""), f"{at}.request")
        yield from _device_name(entry, at)
        yield from binding(entry, at)

    def config(entry: Mapping[str, Any], at: str) -> Iterator[Cause]:
        source = entry.get("source", "")
        if not source:
            yield required(f"{at}.source", f"must be one of {', '.join(_SOURCES)}")
        elif source not in _SOURCES:
            yield not_supported(f"{at}.source", source, _SOURCES)
        yield from names.judge_all(entry.get("requests", []), f"{at}.requests")
        yield from configuration(entry, at, stored=False)

    yield from listed(devices.get("results", []), _RESULTS, f"{path}.devices.results", result)
    yield from listed(devices.get("config", []), _CONFIGS, f"{path}.devices.config", config)
    if "nodeSelector" in allocation:
        yield from node_selector(allocation["nodeSelector"], f"{path}.nodeSelector")


def _device_name(entry: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Which device, and which share of it."""
    yield from driver(entry.get("driver", ""), f"{path}.driver")
    yield from pool(entry.get("pool", ""), f"{path}.pool")
    yield from label(entry.get("device", ""), f"{path}.device")
    if "shareID" in entry:
        yield from uuid(entry["shareID"], f"{path}.shareID")


def _device_state(entry: Mapping[str, Any], path: str) -> Iterator[Cause]:
    yield from _device_name(entry, path)
    yield from conditions(entry.get("conditions", []), f"{path}.conditions")
    if "data" in entry:
        yield from json_object(entry["data"], f"{path}.data", _DATA_BYTES)
    network, at = entry.get("networkData", {}), f"{path}.networkData"
    for field, limit in (("interfaceName", _INTERFACE_BYTES), ("hardwareAddress", _HARDWARE_ADDRESS_BYTES)):
        if size(network.get(field, "")) > limit:
            yield too_long(f"{at}.{field}", size(network[field]), limit)
    yield from distinct(network.get("ips", []), _ADDRESSES, f"{at}.ips", _address, key=str)


def _address(text: str, path: str) -> Iterator[Cause]:
    """An address of an interface with the length of its network, in canonical form."""
    address, _, length = text.partition("/")
    try:
        parsed = ipaddress.ip_address(address)
        canonical = not (length.startswith("0") and length != "0") and length.isascii() and length.isdecimal()
        canonical = canonical and int(length) <= parsed.max_prefixlen and str(parsed) == address
    except ValueError:
        canonical = False
    if not canonical or "%" in address or address.startswith("::ffff:"):
        yield invalid(path, text, "must be an address and a length in canonical form, as 10.9.8.7/24 or 2001:db8::1/64")
