"""DevicePools of documents with who has which device and what is left, in the form of a cluster's published pools.

The allocations are those in the status of DeviceClaims. What is left follows the rules of the search: a device without
an allocated amount is taken whole, and each device in use takes its `requests` from its pool once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduling.pools.capacity import PoolLedger
from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.documents import DevicePool, PoolDeviceClass, ResourceCapacity
from scheduling.pools.matching import PooledDevice, devices_of
from scheduling.pools.published import AmountLeft, DeviceUser, PooledState, PublishedDevice, PublishedPool
from scheduling.pools.reading import title_of
from scheduling.pools.search import node_names, occupying

_Users = Mapping[tuple[str, str], list[DeviceUser]]


def documented_pools(
    pools: Iterable[DevicePool], classes: Iterable[PoolDeviceClass] = (), claims: Iterable[DeviceClaim] = ()
) -> tuple[PublishedPool, ...]:
    """The pools by node, those of the network last, then by driver and name; pool names are unique."""
    known = tuple(pools)
    by_name = {each.metadata.name: each for each in classes}
    ledger = PoolLedger(device for pool in known for device in devices_of(pool))
    users: dict[tuple[str, str], list[DeviceUser]] = {}
    for claim in claims:
        taken = occupying(claim, by_name)
        ledger.apply(taken)
        for each in claim.status.allocations:
            user = DeviceUser(
                title_of(claim), claim.status.pod_names, not taken, bool(each.allocations), each.allocations
            )
            users.setdefault((each.pool, each.device), []).append(user)
    nodes = tuple(node_names(known))
    found = [_published(pool, nodes, ledger, users) for pool in known]
    return tuple(sorted(found, key=lambda each: (each.node is None, each.node or "", each.driver, each.name)))


def _published(pool: DevicePool, nodes: tuple[str, ...], ledger: PoolLedger, users: _Users) -> PublishedPool:
    name, node = pool.metadata.name, pool.spec.node_name or None
    left = tuple(
        AmountLeft(each.name, each.capacity, ledger.left_of_pool(name, each), each.block_size)
        for each in pool.spec.resources
    )
    devices = tuple(_device(ledger.devices[name, each.name], ledger, users) for each in pool.spec.devices)
    return PublishedPool(pool.spec.driver, name, pool, node, nodes if node is None else (node,), devices, left)


def _device(device: PooledDevice, ledger: PoolLedger, users: _Users) -> PublishedDevice:
    use = ledger.uses[device.name]
    state, lacking = PooledState.FREE, ()  # type: tuple[PooledState, tuple[str, ...]]
    if use.users:
        state = PooledState.TAKEN if use.whole else PooledState.SHARED
    elif not ledger.fits_pool(device):
        state, lacking = PooledState.BLOCKED, tuple(ledger.lacking(device))
    return PublishedDevice(
        device.device,
        state,
        tuple(users.get(device.name, ())),
        tuple(_amount(device, each, ledger) for each in device.device.resources),
        lacking,
    )


def _amount(device: PooledDevice, each: ResourceCapacity, ledger: PoolLedger) -> AmountLeft:
    return AmountLeft(each.name, each.capacity, ledger.left_of_device(device.name, each), each.block_size)
