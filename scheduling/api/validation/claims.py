"""Rules for the spec of a claim, and for who may ask for devices in use.

Admin access is a right of namespaces: the API server grants it by the namespace's label
`resource.kubernetes.io/admin-access: "true"` (KEP-5018), so the caller says whether it is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduling.api.validation.bounds import distinct, listed
from scheduling.api.validation.cause import Cause, forbidden, required
from scheduling.api.validation.configs import configuration
from scheduling.api.validation.gates import Gates
from scheduling.api.validation.names import fully_qualified_name
from scheduling.api.validation.requests import REQUESTS, RequestNames, request_rule

ADMIN_NEEDED: Final = 'needs the label resource.kubernetes.io/admin-access: "true" on the namespace'

_CONSTRAINTS: Final = 32
_CONFIGS: Final = 32

Spec = Mapping[str, Any]


def claim_spec(spec: Spec, path: str, gates: Gates) -> Iterator[Cause]:
    """The spec of a new claim or template."""
    devices, at = spec.get("devices", {}), f"{path}.devices"
    requests = devices.get("requests", [])
    names = RequestNames.of(requests)

    def constraint(entry: Mapping[str, Any], place: str) -> Iterator[Cause]:
        yield from names.judge_all(entry.get("requests", []), f"{place}.requests")
        yield from _attribute(entry, place, gates)

    def config(entry: Mapping[str, Any], place: str) -> Iterator[Cause]:
        yield from names.judge_all(entry.get("requests", []), f"{place}.requests")
        yield from configuration(entry, place, stored=False)

    rule = request_rule(gates)
    yield from distinct(requests, REQUESTS, f"{at}.requests", rule, key=lambda entry: entry.get("name", ""))
    yield from listed(devices.get("constraints", []), _CONSTRAINTS, f"{at}.constraints", constraint)
    yield from listed(devices.get("config", []), _CONFIGS, f"{at}.config", config)


def _attribute(constraint: Mapping[str, Any], path: str, gates: Gates) -> Iterator[Cause]:
    """The attribute of a constraint; beside matchAttribute the server does not look at distinctAttribute."""
    for field in ("matchAttribute", "distinctAttribute"):
        if field in constraint:
            yield from fully_qualified_name(constraint[field], f"{path}.{field}")
            return
    if gates.consumable_capacity:
        yield required(path, "must have matchAttribute or distinctAttribute")
    else:
        yield required(f"{path}.matchAttribute")


def admin_request(spec: Spec) -> Iterator[Cause]:
    """The first request with admin access, in a namespace that has not the right. The server's path lacks `exactly`."""
    for index, request in enumerate(spec.get("devices", {}).get("requests", [])):
        if request.get("exactly", {}).get("adminAccess"):
            yield forbidden(f"spec.devices.requests[{index}].adminAccess", ADMIN_NEEDED)
            return
