"""What the claims would get on a node: devices by request, and what the devices of a claim have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kube.bodies import JsonObject
from scheduling.allocator.claims import Claim
from scheduling.allocator.reading import Object
from scheduling.allocator.slices import Device, DeviceID
from scheduling.api.quantities import of_json
from scheduling.explain.diagnosis.attribute_values import written
from scheduling.explain.diagnosis.obstacles import Value
from scheduling.explain.diagnosis.verdict import Placement, Shared
from scheduling.explain.kinds import name_of, namespace_of

STANDARD = "resource.kubernetes.io/"
"""Domain of the attributes that mean the same for all drivers, such as pcieRoot and numaNode."""
MOST = 5
"""Common attributes that are told."""


def title_of(claim: JsonObject) -> str:
    """``namespace/name``; a claim that is still to be made from a template has the name it would begin with."""
    return f"{namespace_of(claim)}/{name_of(claim)}"


def placements(
    claims: Sequence[JsonObject], results: Sequence[Object], devices: Mapping[DeviceID, Device]
) -> Iterator[Placement]:
    """Every device of an allocation; ``devices`` are those of the node."""
    for claim, result in zip(claims, results, strict=True):
        for each in result["devices"].get("results") or ():
            device = DeviceID(each["driver"], each["pool"], each["device"])
            consumed = each.get("consumedCapacity") or {}
            yield Placement(
                claim=title_of(claim),
                request=each["request"],
                driver=device.driver,
                pool=device.pool,
                device=device.device,
                admin=bool(each.get("adminAccess")),
                shared=bool(each.get("shareID")),
                network=not _bound(devices.get(device)),
                consumed=tuple(Value(name, of_json(amount).text) for name, amount in sorted(consumed.items())),
                conditions=tuple(each.get("bindingConditions") or ()),
            )


def _bound(device: Device | None) -> bool:
    """Whether a device is of one node alone."""
    return device is None or bool(device.slice.nodes.name or device.nodes.name or device.binds_to_node)


def shared(
    claims: Sequence[JsonObject], placed: Sequence[Placement], devices: Mapping[DeviceID, Device]
) -> Iterator[Shared]:
    """For every claim with several devices: the values that all of them have, the most telling first."""
    for claim in claims:
        mine = [one for one in placed if one.claim == title_of(claim)]
        chosen = [devices[one] for each in mine if (one := DeviceID(each.driver, each.pool, each.device)) in devices]
        if len({device.id for device in chosen}) < 2:
            continue
        every = [_attributes(device) for device in chosen]
        common = {name: value for name, value in every[0].items() if all(each.get(name) == value for each in every)}
        asked = {rule.match_attribute for rule in Claim(claim).constraints}
        everywhere = [_attributes(device) for device in devices.values()]

        def rank(name: str, asked: set[str | None] = asked) -> int:
            return 0 if name in asked else 1 if name.startswith(STANDARD) else 2

        told = sorted(
            (
                name
                for name, value in common.items()
                # What all devices of the node have in common says nothing about the choice.
                if rank(name) < 2 or any(each.get(name) != value for each in everywhere)
            ),
            key=lambda name: (rank(name), name),
        )
        if told:
            yield Shared(title_of(claim), tuple(Value(name, common[name]) for name in told[:MOST]))


def _attributes(device: Device) -> dict[str, str]:
    """Values by full name."""
    driver = device.id.driver
    return {
        name if "/" in name else f"{driver}/{name}": text
        for name, attribute in device.attributes.items()
        if (text := written(attribute)) is not None
    }
