"""Rules of a DRA driver's ResourceSlices: pools are whole, belong to the Node, and come back when they are deleted."""

from __future__ import annotations

from collections import Counter

from sandbox.conformance.driver_testbed import NODE, DriverTestbed, incomplete
from sandbox.conformance.rule import RuleBroken, RuleNotApplicable


async def publishes(bed: DriverTestbed) -> str | None:
    """Check that the driver publishes complete pools: a scheduler allocates nothing else."""
    if not bed.has_program:
        raise RuleNotApplicable("it needs an API server that the driver publishes at; give the command, not a socket")
    driver = await bed.driver()
    if not await bed.polled(bed.slices, bed.pace.patience):
        others = {each["spec"]["driver"] for each in bed.server.store.list("resourceslices")}
        found = f"; there are slices of {', '.join(sorted(others))}" if others else ""
        raise RuleBroken(
            f"no ResourceSlice has spec.driver {driver.name!r} {bed.pace.patience:g} s after its registration{found}"
        )
    if not await bed.polled(lambda: not incomplete(bed.slices()), bed.pace.patience):
        raise RuleBroken(f"{incomplete(bed.slices())} for {bed.pace.patience:g} s; a scheduler ignores such a pool")
    specs = bed.slices()
    count = sum(len(spec.get("devices") or ()) for spec in specs)
    return f"{len(specs)} slices with {count} devices"


async def unique_devices(bed: DriverTestbed) -> str | None:
    """Check that no device stands twice in a pool: a scheduler takes nothing from such a pool."""
    for pool, names in _devices(await _published(bed)).items():
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise RuleBroken(f"pool {pool} has the device {twice[0]!r} twice")
    return None


async def owned_by_node(bed: DriverTestbed) -> str | None:
    """Check that the Node owns the slices: nobody else removes those of a node that is gone."""
    await _published(bed)
    uid = bed.server.store.get("nodes", NODE)["metadata"]["uid"]
    for each in bed.server.store.list("resourceslices", fields=f"spec.nodeName={NODE}"):
        owners = each["metadata"].get("ownerReferences") or ()
        if not any(owner["kind"] == "Node" and owner["uid"] == uid for owner in owners):
            raise RuleBroken(
                f"slice {each['metadata']['name']} has no owner reference to the Node {NODE} and its UID {uid}"
            )
    return None


async def restores(bed: DriverTestbed) -> str | None:
    """Check that deleted slices come back: a kubelet deletes them at its start, and 30 s after the driver's end."""
    before = _devices(await _published(bed))
    bed.delete_slices()
    await bed.polled(lambda: not incomplete(bed.slices()) and _devices(bed.slices()) == before, bed.pace.slices)
    after = bed.slices()
    if not after:
        raise RuleBroken(f"its slices were deleted, and none is back after {bed.pace.slices:g} s")
    if incomplete(after):
        raise RuleBroken(f"its slices were deleted, and after {bed.pace.slices:g} s {incomplete(after)}")
    gone = [name for pool, names in before.items() for name in names if name not in _devices(after).get(pool, ())]
    if gone:
        raise RuleBroken(f"its slices were deleted, and after {bed.pace.slices:g} s device {gone[0]!r} is missing")
    return None


async def keeps_at_end(bed: DriverTestbed) -> str | None:
    """Check that the driver leaves its slices: its update must not take devices from the scheduler."""
    before = _devices(await _published(bed))
    await bed.end()
    if _devices(bed.slices()) != before:
        raise RuleBroken("it deleted slices at its end; a driver that is updated would take its devices away meanwhile")
    return None


async def _published(bed: DriverTestbed) -> list[dict[str, object]]:
    return await bed.published()


def _devices(specs: list[dict[str, object]]) -> dict[str, list[str]]:
    """Pool -> names of its devices, sorted."""
    found: dict[str, list[str]] = {}
    for spec in specs:
        pool, devices = spec["pool"], spec.get("devices") or ()
        assert isinstance(pool, dict)
        assert isinstance(devices, (list, tuple))
        found.setdefault(pool["name"], []).extend(device["name"] for device in devices)
    return {pool: sorted(names) for pool, names in found.items()}
