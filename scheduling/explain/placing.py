"""What the claims would get on a node: devices by request, and the attributes that the devices of a claim share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from kube.bodies import JsonObject
from scheduling.allocator.claims import Claim
from scheduling.allocator.constraints import as_values, lookup
from scheduling.allocator.reading import Object, ObjectReference
from scheduling.allocator.slices import DeviceID, SliceDevice
from scheduling.api.quantities import of_json
from scheduling.explain.obstacles import ReadValue
from scheduling.explain.state import name_of, namespace_of
from scheduling.explain.verdict import PlacedDevice, SharedAttributes


def written(attribute: Object) -> str | None:
    """A value as text: strings in quotes, versions bare, lists in brackets; None without a value."""
    values = as_values(attribute)
    if values is None:
        return None
    bare = values.type == "version"
    texts = sorted(str(each) if bare else json.dumps(each, ensure_ascii=False) for each in values.values)
    is_list = any(attribute.get(kind) for kind in ("ints", "bools", "strings", "versions"))
    return f"[{', '.join(texts)}]" if is_list else texts[0]


def value_of(device: SliceDevice, name: str) -> str | None:
    """The value of the attribute with that full name, None where the device has none."""
    attribute = lookup(device, name)
    return None if attribute is None else written(attribute)


STANDARD = "resource.kubernetes.io/"
"""Domain of the attributes that mean the same for all drivers, such as pcieRoot and numaNode."""
MOST = 5
"""Common attributes that are shown."""


def title_of(claim: JsonObject) -> str:
    """``namespace/name``; a claim that is still to be made from a template has the name it would begin with."""
    return f"{namespace_of(claim)}/{name_of(claim)}"


def title_of_reference(claim: ObjectReference) -> str:
    """The same for a claim in an error or a fact of the allocator."""
    return f"{claim.namespace or 'default'}/{claim.name}"


def placements(
    claims: Sequence[JsonObject], results: Sequence[Object], devices: Mapping[DeviceID, SliceDevice]
) -> Iterator[PlacedDevice]:
    """Every device of an allocation; ``devices`` are those of the node."""
    for claim, result in zip(claims, results, strict=True):
        for each in result["devices"].get("results") or ():
            device = DeviceID(each["driver"], each["pool"], each["device"])
            consumed = each.get("consumedCapacity") or {}
            yield PlacedDevice(
                claim=title_of(claim),
                request=each["request"],
                driver=device.driver,
                pool=device.pool,
                device=device.device,
                admin=bool(each.get("adminAccess")),
                shared=bool(each.get("shareID")),
                network=not _bound(devices.get(device)),
                consumed=tuple(ReadValue(name, of_json(amount).text) for name, amount in sorted(consumed.items())),
                conditions=tuple(each.get("bindingConditions") or ()),
            )


def _bound(device: SliceDevice | None) -> bool:
    """Whether a device is of one node alone."""
    return device is None or bool(device.slice.nodes.name or device.nodes.name or device.binds_to_node)


def shared(
    claims: Sequence[JsonObject], placed: Sequence[PlacedDevice], devices: Mapping[DeviceID, SliceDevice]
) -> Iterator[SharedAttributes]:
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

        shown = sorted(
            (
                name
                for name, value in common.items()
                # What all devices of the node have in common says nothing about the choice.
                if rank(name) < 2 or any(each.get(name) != value for each in everywhere)
            ),
            key=lambda name: (rank(name), name),
        )
        if shown:
            yield SharedAttributes(title_of(claim), tuple(ReadValue(name, common[name]) for name in shown[:MOST]))


def _attributes(device: SliceDevice) -> dict[str, str]:
    """Values by full name."""
    driver = device.id.driver
    return {
        name if "/" in name else f"{driver}/{name}": text
        for name, attribute in device.attributes.items()
        if (text := written(attribute)) is not None
    }
