"""The second door's own values as people see them: beside what should be published, what the API server has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driver.claims.status import ClaimStatus
from driver.door.registration import DoorStatus
from driver.publishing.publisher import Publication
from kube.bodies import JsonObject, text_at
from node.offer import Withheld
from ostler.admin.dra import (
    ClaimDevice,
    ClaimState,
    ClaimView,
    DeviceState,
    DraStatus,
    PoolView,
    SliceDevice,
    SlicesView,
)


def slices_view(
    driver: str, publication: Publication, reasons: dict[str, str] | None = None, withheld: Iterable[Withheld] = ()
) -> SlicesView:
    """What is published.

    ``reasons``: why a device is tainted, by its name. ``withheld``: what this door does not show.
    """
    devices = (*_devices(publication, reasons or {}), *_withheld(withheld))
    pool = PoolView(
        publication.pool,
        len(publication.stored),
        devices,
        publication.in_order,
        publication.dropped,
        publication.error,
    )
    return SlicesView(
        driver, (pool,), publication.generation, publication.creates, publication.updates, publication.deletes
    )


def _devices(publication: Publication, reasons: dict[str, str]) -> Iterator[SliceDevice]:
    """In the order that is wanted; what is only stored comes last."""
    places = {name: number for number, names in enumerate(publication.stored) for name in names}
    wanted: set[str] = set()
    for group in publication.desired:
        for device in group:
            name = text_at(device, "name")
            wanted.add(name)
            state = DeviceState.PUBLISHED if name in places else DeviceState.MISSING
            yield SliceDevice(name, state, places.get(name), _taints(device), reasons.get(name, ""))
    for name, number in places.items():
        if name not in wanted:
            yield SliceDevice(name, DeviceState.SURPLUS, number)


def _taints(device: JsonObject) -> tuple[str, ...]:
    taints = device.get("taints")
    if not isinstance(taints, list):
        return ()
    return tuple(_taint(taint) for taint in taints if isinstance(taint, dict))


def _taint(taint: JsonObject) -> str:
    value = text_at(taint, "value")
    return f"{text_at(taint, 'key')}{'=' if value else ''}{value}:{text_at(taint, 'effect')}"


def _withheld(withheld: Iterable[Withheld]) -> Iterator[SliceDevice]:
    for each in withheld:
        yield SliceDevice(each.device.name, DeviceState.WITHHELD, why=each.reason)


def door_summary(door: DoorStatus, slices: SlicesView, claims: Iterable[ClaimView]) -> DraStatus:
    """The door in one line: what keeps the kubelet from it first, what keeps slices from being written second."""
    published = sum(pool.count(DeviceState.PUBLISHED) for pool in slices.pools)
    missing = sum(pool.count(DeviceState.MISSING) for pool in slices.pools)
    unpublished = "; ".join(pool.problem for pool in slices.pools if pool.problem)
    return DraStatus(
        slices.driver,
        door.state.value,
        str(door.socket or ""),
        door.health_streams,
        devices=published + missing,
        published=published,
        claims=sum(claim.state is not ClaimState.REFUSED for claim in claims),
        problem=door.detail or unpublished,
        unpublished=unpublished,
    )


def claim_views(statuses: Iterable[ClaimStatus]) -> tuple[ClaimView, ...]:
    """Every claim, in the order given."""
    return tuple(
        ClaimView(
            status.claim.namespace,
            status.claim.name,
            status.claim.uid,
            ClaimState(status.state),
            status.since,
            status.users,
            tuple(
                ClaimDevice(given.requests, given.pool, given.device, given.cdi_devices, given.share_id or "")
                for given in status.devices
            ),
            status.problem,
        )
        for status in statuses
    )
