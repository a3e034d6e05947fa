"""Pools and findings as plain data for programs, in the API's spelling."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from ostler import __version__
from ostler.explain.forms import plain_data
from scheduling.pools.obstacles import PoolObstacle
from scheduling.pools.overview import PoolNode, cards_of, kind_name
from scheduling.pools.published import AmountLeft, DeviceUser, PublishedDevice, PublishedPool
from scheduling.pools.reading import title_of
from scheduling.pools.search import PoolSolution
from scheduling.pools.survey import PoolExplanation, PoolFindingGroup

Data = dict[str, object]

VIEW_SCHEMA = "ostler.dev/pools-view/v1"
"""Name of the form of the data; a member that changes its meaning gets a new number."""


EXPLAIN_SCHEMA = "ostler.dev/pools-explain/v1"
"""The same for an explanation."""


def explanation_document(answer: PoolExplanation) -> Data:
    """The answer for every group of nodes."""
    return {
        "schema": EXPLAIN_SCHEMA,
        "version": __version__,
        "claims": list(answer.claims),
        "fits": answer.fitting > 0,
        "nodes": answer.nodes,
        "fitting": answer.fitting,
        "stops": [_plain(each) for each in answer.stops],
        "groups": [_group(each) for each in answer.groups],
    }


def _group(group: PoolFindingGroup) -> Data:
    finding = group.finding
    return {
        "nodes": list(group.nodes),
        "outcome": str(finding.outcome),
        "devices": [] if finding.solution is None else list(_chosen(finding.solution)),
        "obstacles": _plain(finding.obstacles),
        "needs": _plain(finding.needs),
        "remedies": _plain(group.remedies),
    }


def _chosen(solution: PoolSolution) -> Iterator[Data]:
    for need in solution.needs:
        for each in need.devices:
            pool, device = each.device.name
            yield {
                "claim": title_of(need.claim),
                "entry": need.instance,
                "alternative": need.alternative,
                "class": each.class_name,
                "pool": pool,
                "device": device,
                "admin": each.admin_access,
                "amounts": {one.name: str(one.allocation) for one in each.amounts},
            }


def _plain(fact: object) -> object:
    return plain_data(fact, PoolObstacle, _LEFT_OUT)


_LEFT_OUT: Mapping[type, Collection[str]] = {DeviceUser: ("admin", "shared", "amounts")}
"""Fields of a user that a reason does not mention."""


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
