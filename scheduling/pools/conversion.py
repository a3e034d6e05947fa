"""Documents of pools into objects of resource.k8s.io/v1: what they become, and what is lost on the way."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from scheduling.pools.claim_documents import DeviceClaim, Document
from scheduling.pools.documents import DevicePool, PoolDeviceClass
from scheduling.pools.lost import Losses, Lost
from scheduling.pools.reading import title_of
from scheduling.pools.resource_claims import ClaimConversion
from scheduling.pools.resource_slices import Object, PublishedNames, class_of, slices_of


@dataclass(frozen=True, slots=True)
class Conversion:
    """The objects, and what is lost, both in the order of the documents: pools, classes, claims."""

    objects: tuple[Object, ...]
    lost: tuple[Lost, ...]


def convert(documents: Sequence[Document], templates: Collection[str] = ()) -> Conversion:
    """The objects that documents become. `templates`: claims that are templates for pods, as `namespace/name`."""
    lost: list[Lost] = []
    pools = [each for each in documents if isinstance(each, DevicePool)]
    classes = [each for each in documents if isinstance(each, PoolDeviceClass)]
    names = PublishedNames(pools)
    objects: list[Object] = []
    for pool in pools:
        objects += slices_of(pool, Losses(f"DevicePool {title_of(pool)}", lost))
    devices = {
        (each["spec"]["pool"]["name"], device["name"]): (each["spec"]["driver"], device)
        for each in objects
        for device in each["spec"].get("devices", ())
    }
    for class_ in classes:
        found = class_of(class_, names, Losses(f"DeviceClass {title_of(class_)}", lost))
        objects += [found] if found is not None else []
    claims = ClaimConversion({each.metadata.name: each for each in classes}, names, devices)
    for claim in documents:
        if isinstance(claim, DeviceClaim):
            losses = Losses(f"DeviceClaim {title_of(claim)}", lost)
            found = claims.convert(claim, losses, template=title_of(claim) in templates)
            objects += [found] if found is not None else []
    return Conversion(tuple(objects), tuple(lost))
