"""The ResourceSlices that a view would become, without an API server: for people who want to see or apply them.

What the publisher gives its controller and what the controller writes for a pool that does not exist yet, in one step.
An owner is left out, since its UID is a cluster's: slices that somebody applies stay until somebody deletes them.
"""

from __future__ import annotations

from driver.devices.description import counter_set, slice_device
from driver.devices.view import DoorView
from driver.names import Peer
from driver.publishing.publisher import parted_gpu
from driver.slices.content import new_object
from driver.slices.model import Pool, node_owner, pack
from driver.slices.planning import ByIndex
from kube.bodies import JsonObject


def slices_of(view: DoorView, driver: str, node: str, peers: tuple[Peer, ...] = ()) -> tuple[JsonObject, ...]:
    """The slices of a node's pool, in generation 1, named as the controller would but for the random letters."""
    slices = pack(
        [slice_device(each, peers) for each in view.devices],
        counters=[counter_set(each) for each in view.counters],
        groups={each.device.name: gpu for each in view.devices if (gpu := parted_gpu(each))},
    )
    pool, owner = Pool(slices), node_owner(node)
    found: list[JsonObject] = []
    for index in range(len(slices)):
        prefix = ByIndex().generate_name(index, len(slices), driver, owner)
        body = new_object(
            driver=driver,
            owner=None,
            node=node,
            generate_name="",
            name=node,
            pool=pool,
            index=index,
            generation=1,
        )
        found.append({**body, "metadata": {"name": prefix.rstrip("-")}})
    return tuple(found)
