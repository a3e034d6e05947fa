"""Rules for the spec and the status of ResourceClaims.

By feature: requests, allocation and reservations KEP-4381, alternatives of a request KEP-4816, state of a claim's
devices KEP-4817. Admin access is a right of namespaces: the API server grants it by the namespace's label
`resource.kubernetes.io/admin-access: "true"` (KEP-5018), so the caller says whether the namespace has the label.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scheduling.api.labels import size
from scheduling.api.validation.cause import (
    StatusCause,
    distinct,
    forbidden,
    invalid,
    listed,
    not_supported,
    required,
    too_long,
)
from scheduling.api.validation.decoding import same
from scheduling.api.validation.parts import (
    class_name,
    conditions,
    configuration,
    driver,
    fully_qualified_name,
    json_object,
    label,
    node_selector,
    pool,
    selectors,
    toleration,
    uuid,
)
from scheduling.api.validation.shapes import ALLOCATION, Gates
from scheduling.api.validation.slices import binding
from scheduling.api.validation.storing import identity, results_of

_CONSTRAINTS: Final = 32
_CONFIGS: Final = 32
Spec = Mapping[str, Any]
ADMIN_NEEDED: Final = 'needs the label resource.kubernetes.io/admin-access: "true" on the namespace'
REQUESTS: Final = 32
_ALTERNATIVES: Final = 8
_RESULTS: Final = 32
_RESULT_CONFIGS: Final = 64  # of classes and of the claim
_RESERVATIONS: Final = 256
_DATA_BYTES: Final = 10 * 1024
_INTERFACE_BYTES: Final = 256
_HARDWARE_ADDRESS_BYTES: Final = 128
_ADDRESSES: Final = 16
_CONFIG_SOURCES: Final = ("FromClaim", "FromClass")
Request = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RequestNames:
    """The names that a claim's constraints, configuration and results may refer to."""

    alternatives: Mapping[str, frozenset[str]]
    """Names of requests, each with the names of its alternatives."""

    @staticmethod
    def of(requests: Sequence[Request]) -> RequestNames:
        """Return the names in a list of requests; of two with one name the last counts."""
        return RequestNames(
            {
                request.get("name", ""): frozenset(entry.get("name", "") for entry in request.get("firstAvailable", []))
                for request in requests
            }
        )

    def __contains__(self, reference: str) -> bool:
        """Tell whether `<request>` or `<request>/<alternative>` is there."""
        request, slash, alternative = reference.partition("/")
        return request in self.alternatives and (not slash or alternative in self.alternatives[request])

    def judge(self, reference: str, path: str) -> Iterator[StatusCause]:
        """A reference to a request, or to an alternative in one."""
        parts = reference.split("/")
        if len(parts) <= 2:
            for part in parts:
                yield from label(part, path)
        if len(parts) > 2 or reference not in self:
            yield invalid(path, reference, "must be '<request>' or '<request>/<alternative>' of this claim")

    def judge_all(self, references: Sequence[str], path: str) -> Iterator[StatusCause]:
        """A list of references, none twice."""
        yield from distinct(references, REQUESTS, path, self.judge, key=str)


def request_rule(gates: Gates) -> Callable[[Request, str], Iterator[StatusCause]]:
    """Return the rule for a request of a claim."""

    def alternative(entry: Request, path: str) -> Iterator[StatusCause]:
        yield from label(entry.get("name", ""), f"{path}.name")
        yield from _devices(entry, path, gates)

    def request(entry: Request, path: str) -> Iterator[StatusCause]:
        yield from label(entry.get("name", ""), f"{path}.name")
        alternatives = entry.get("firstAvailable", [])
        if alternatives and "exactly" in entry:
            yield invalid(path, entry.get("name", ""), "must have exactly or firstAvailable, not both")
        elif alternatives:
            at = f"{path}.firstAvailable"
            yield from distinct(alternatives, _ALTERNATIVES, at, alternative, key=lambda each: each.get("name", ""))
        elif "exactly" in entry:
            yield from _devices(entry["exactly"], f"{path}.exactly", gates)
        else:
            yield required(path, "must have exactly or firstAvailable")

    return request


def _devices(request: Request, path: str, gates: Gates) -> Iterator[StatusCause]:
    """What an exact request and an alternative share: which devices, and how many."""
    yield from class_name(request.get("deviceClassName", ""), f"{path}.deviceClassName")
    yield from selectors(request.get("selectors", []), f"{path}.selectors", gates, stored=False)
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All":
        if count:
            yield invalid(f"{path}.count", count, "must be left out with allocationMode All")
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(f"{path}.count", count, "must be above zero")
    else:
        yield not_supported(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    for index, entry in enumerate(request.get("tolerations", [])):
        yield from toleration(entry, f"{path}.tolerations[{index}]")


def claim_spec(spec: Spec, path: str, gates: Gates) -> Iterator[StatusCause]:
    """The spec of a new claim or template."""
    devices, at = spec.get("devices", {}), f"{path}.devices"
    requests = devices.get("requests", [])
    names = RequestNames.of(requests)

    def constraint(entry: Mapping[str, Any], place: str) -> Iterator[StatusCause]:
        yield from names.judge_all(entry.get("requests", []), f"{place}.requests")
        yield from _constraint_attribute(entry, place, gates)

    def config(entry: Mapping[str, Any], place: str) -> Iterator[StatusCause]:
        yield from names.judge_all(entry.get("requests", []), f"{place}.requests")
        yield from configuration(entry, place, stored=False)

    rule = request_rule(gates)
    yield from distinct(requests, REQUESTS, f"{at}.requests", rule, key=lambda entry: entry.get("name", ""))
    yield from listed(devices.get("constraints", []), _CONSTRAINTS, f"{at}.constraints", constraint)
    yield from listed(devices.get("config", []), _CONFIGS, f"{at}.config", config)


def _constraint_attribute(constraint: Mapping[str, Any], path: str, gates: Gates) -> Iterator[StatusCause]:
    """The attribute of a constraint; beside matchAttribute the server does not look at distinctAttribute."""
    for field in ("matchAttribute", "distinctAttribute"):
        if field in constraint:
            yield from fully_qualified_name(constraint[field], f"{path}.{field}")
            return
    if gates.consumable_capacity:
        yield required(path, "must have matchAttribute or distinctAttribute")
    else:
        yield required(f"{path}.matchAttribute")


def admin_request(spec: Spec) -> Iterator[StatusCause]:
    """The first request with admin access, in a namespace that lacks the right. The server's path lacks `exactly`."""
    for index, request in enumerate(spec.get("devices", {}).get("requests", [])):
        if request.get("exactly", {}).get("adminAccess"):
            yield forbidden(f"spec.devices.requests[{index}].adminAccess", ADMIN_NEEDED)
            return


Status = Mapping[str, Any]


def claim_status(
    status: Status, old: Status, requests: Sequence[Mapping[str, Any]], *, deleted: bool
) -> Iterator[StatusCause]:
    """The status that replaces `old`. `requests`: the claim's; `deleted`: its deletion has begun."""
    yield from _reservations(status, old, deleted=deleted)
    allocation = status.get("allocation")
    allocated = {identity(result) for result in results_of({"status": status})}

    def state(entry: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
        yield from _device_state(entry, path)
        if identity(entry) not in allocated:
            yield invalid(path, _described(entry), "must be a device that is allocated to this claim")

    yield from distinct(status.get("devices", []), None, "status.devices", state, key=identity)
    if allocation is None:
        return
    if "allocation" not in old:
        yield from _allocation(allocation, "status.allocation", RequestNames.of(requests))
    elif not same(allocation, old["allocation"], ALLOCATION):
        yield invalid("status.allocation", "the new one", "must stay as it is; remove it before another is written")


def admin_result(claim: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[StatusCause]:
    """The first result with admin access, if there was none before and the namespace lacks the right."""
    if any(result.get("adminAccess") for result in results_of(old)):
        return
    for index, result in enumerate(results_of(claim)):
        if result.get("adminAccess"):
            yield forbidden(f"status.allocation.devices.results[{index}].adminAccess", ADMIN_NEEDED)
            return


def _described(device: Mapping[str, Any]) -> str:
    return "/".join(part for part in identity(device) if part)


def _reservations(status: Status, old: Status, *, deleted: bool) -> Iterator[StatusCause]:
    reserved, path = status.get("reservedFor", []), "status.reservedFor"

    def consumer(entry: Mapping[str, Any], at: str) -> Iterator[StatusCause]:
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


def _allocation(allocation: Mapping[str, Any], path: str, names: RequestNames) -> Iterator[StatusCause]:
    devices = allocation.get("devices", {})

    def result(entry: Mapping[str, Any], at: str) -> Iterator[StatusCause]:
        yield from names.judge(entry.get("request", ""), f"{at}.request")
        yield from _device_name(entry, at)
        yield from binding(entry, at)

    def config(entry: Mapping[str, Any], at: str) -> Iterator[StatusCause]:
        source = entry.get("source", "")
        if not source:
            yield required(f"{at}.source", f"must be one of {', '.join(_CONFIG_SOURCES)}")
        elif source not in _CONFIG_SOURCES:
            yield not_supported(f"{at}.source", source, _CONFIG_SOURCES)
        yield from names.judge_all(entry.get("requests", []), f"{at}.requests")
        yield from configuration(entry, at, stored=False)

    yield from listed(devices.get("results", []), _RESULTS, f"{path}.devices.results", result)
    yield from listed(devices.get("config", []), _RESULT_CONFIGS, f"{path}.devices.config", config)
    if "nodeSelector" in allocation:
        yield from node_selector(allocation["nodeSelector"], f"{path}.nodeSelector")


def _device_name(entry: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    """Which device, and which share of it."""
    yield from driver(entry.get("driver", ""), f"{path}.driver")
    yield from pool(entry.get("pool", ""), f"{path}.pool")
    yield from label(entry.get("device", ""), f"{path}.device")
    if "shareID" in entry:
        yield from uuid(entry["shareID"], f"{path}.shareID")


def _device_state(entry: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    yield from _device_name(entry, path)
    yield from conditions(entry.get("conditions", []), f"{path}.conditions")
    if "data" in entry:
        yield from json_object(entry["data"], f"{path}.data", _DATA_BYTES)
    network, at = entry.get("networkData", {}), f"{path}.networkData"
    for field, limit in (("interfaceName", _INTERFACE_BYTES), ("hardwareAddress", _HARDWARE_ADDRESS_BYTES)):
        if size(network.get(field, "")) > limit:
            yield too_long(f"{at}.{field}", size(network[field]), limit)
    yield from distinct(network.get("ips", []), _ADDRESSES, f"{at}.ips", _address, key=str)


def _address(text: str, path: str) -> Iterator[StatusCause]:
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
