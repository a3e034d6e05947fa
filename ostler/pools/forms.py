"""Pools and findings as plain data for programs, in the API's spelling."""

from __future__ import annotations

from collections.abc import Iterable

from ostler import __version__
from scheduling.pools.overview import PoolNode, cards_of, kind_name
from scheduling.pools.published import AmountLeft, PublishedDevice, PublishedPool

Data = dict[str, object]

VIEW_SCHEMA = "ostler.dev/pools-view/v1"
"""Name of the form of the data; a member that changes its meaning gets a new number."""


def view_document(nodes: Iterable[PoolNode]) -> Data:
    """Every pool with every device, and for each kind how many are free."""
    known = list(nodes)
    return {
        "schema": VIEW_SCHEMA,
        "version": __version__,
        "nodes": sum(bool(each.name) for each in known),
        "pools": [_pool(pool, node) for node in known for pool in node.pools],
    }


def _pool(pool: PublishedPool, node: PoolNode) -> Data:
    kinds = [each for each in node.kinds if each.pool is pool]
    return {
        "name": pool.name,
        "driver": pool.driver,
        "node": pool.node,
        "nodes": list(pool.nodes),
        "fault": pool.fault,
        "kinds": [{"name": each.name, "devices": len(each.devices), "free": each.free} for each in kinds],
        "resources": [_amount(each) for each in pool.resources],
        "cards": [
            {"device": each.whole.name, "partitions": [part.name for part in each.parts]} for each in cards_of(pool)
        ],
        "devices": [_device(each, pool) for each in pool.devices],
    }


def _device(device: PublishedDevice, pool: PublishedPool) -> Data:
    return {
        "name": device.name,
        "kind": kind_name(pool, device),
        "state": str(device.state),
        "users": [
            {
                "claim": each.claim,
                "pods": list(each.pods),
                "admin": each.admin,
                "amounts": {one.name: str(one.allocation) for one in each.amounts},
            }
            for each in device.users
        ],
        "amounts": [_amount(each) for each in device.amounts],
        "lacking": list(device.lacking),
        "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in device.taints],
    }


def _amount(amount: AmountLeft) -> Data:
    block = {} if amount.block is None else {"block": str(amount.block)}
    return {"name": amount.name, "capacity": str(amount.capacity), "left": str(amount.left), **block}
