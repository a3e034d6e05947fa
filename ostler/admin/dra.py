"""The DRA door for people: the published devices beside the wanted ones, and the claims that hold devices.

Builds messages of the agent's own service, where the parts of the door report their state. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Protocol

from driver.claims.model import ClaimState, ClaimStatus
from driver.door.registration import DoorStatus
from driver.interfaces.observers import InterfacePlace
from driver.nri.status import NriState, NriStatus
from driver.publishing.publication import Publication
from kube.bodies import JsonObject, text_at
from node.offer import Offer, Withheld
from protos.agent.v1alpha1 import agent_pb2


class PoolDeviceState(StrEnum):
    """``PoolDevice.state``: a device as the API server has it, compared with the wanted state."""

    PUBLISHED = "published"
    MISSING = "missing"
    """It should be in a slice, but is in none that the API server has."""
    SURPLUS = "surplus"
    """The API server has it, but it should no longer be there."""
    WITHHELD = "withheld"
    """It is not published, for the given reason."""


class DraView(Protocol):
    """The part of the DRA door that the agent's own service needs."""

    @property
    def offer(self) -> Offer:
        """The door's offer for the snapshot that is shown."""

    def interfaces(self) -> Mapping[str, agent_pb2.PodInterface]:
        """The places of claims' interfaces that are not on the node, by device."""

    def slices(self) -> agent_pb2.ListSlicesResponse:
        """The published devices, beside the wanted ones."""

    def claims(self) -> agent_pb2.ListClaimsResponse:
        """Every claim that holds devices or was refused lately, in a stable order."""


def slices_message(
    driver: str, publication: Publication, reasons: Mapping[str, str], withheld: Iterable[Withheld] = ()
) -> agent_pb2.ListSlicesResponse:
    """The published devices. ``reasons``: why they are tainted, by name. ``withheld``: devices the door withholds."""
    pool = agent_pb2.Pool(
        name=publication.pool,
        slices=len(publication.stored),
        devices=[*_devices(publication, reasons), *(_device(PoolDeviceState.WITHHELD, each) for each in withheld)],
        in_order=publication.in_order,
        dropped=publication.dropped,
        problem=publication.error,
    )
    return agent_pb2.ListSlicesResponse(
        driver=driver,
        pools=[pool],
        generation=publication.generation,
        created=publication.creates,
        updated=publication.updates,
        deleted=publication.deletes,
    )


def claims_message(statuses: Iterable[ClaimStatus]) -> agent_pb2.ListClaimsResponse:
    """Every claim, in the order given."""
    message = agent_pb2.ListClaimsResponse()
    for status in statuses:
        claim = message.claims.add(
            namespace=status.claim.namespace,
            name=status.claim.name,
            uid=status.claim.uid,
            state=status.state.value,
            since=status.since,
            pods=status.users,
            stuck=status.problem,
            metadata_files=status.metadata_files,
        )
        for device in status.devices:
            claim.devices.add(
                requests=device.requests,
                pool=device.pool,
                device=device.device,
                cdi_devices=device.cdi_devices,
                share_id=device.share_id,
            )
    return message


def door_message(
    door: DoorStatus,
    slices: agent_pb2.ListSlicesResponse,
    claims: agent_pb2.ListClaimsResponse,
    nri: NriStatus | None = None,
) -> agent_pb2.DraStatus:
    """The door in one line: why the kubelet cannot use it comes first, why slices are not written second."""
    published, missing = (devices_in(slices, state) for state in (PoolDeviceState.PUBLISHED, PoolDeviceState.MISSING))
    return agent_pb2.DraStatus(
        driver=slices.driver,
        registration=door.state.value,
        socket=str(door.socket or ""),
        health_streams=door.health_streams,
        devices=published + missing,
        published=published,
        claims=sum(claim.state != ClaimState.REFUSED for claim in claims.claims),
        problem=door.detail or unpublished(slices),
        nri="" if nri is None else _runtime(nri),
    )


def interfaces_message(places: Mapping[str, InterfacePlace]) -> dict[str, agent_pb2.PodInterface]:
    """Where interfaces are, by device."""
    return {
        device: agent_pb2.PodInterface(pod=place.pod, interface=place.interface, problem=place.problem)
        for device, place in places.items()
    }


def _runtime(nri: NriStatus) -> str:
    return f"connected to {nri.runtime}" if nri.state is NriState.CONNECTED else f"{nri.state}: {nri.reason}"


def devices_in(slices: agent_pb2.ListSlicesResponse, state: PoolDeviceState) -> int:
    """How many devices are in that state."""
    return sum(device.state == state for pool in slices.pools for device in pool.devices)


def unpublished(slices: agent_pb2.ListSlicesResponse) -> str:
    """Why slices differ from the wanted ones, empty if they do not."""
    return "; ".join(pool.problem for pool in slices.pools if pool.problem)


def _devices(publication: Publication, reasons: Mapping[str, str]) -> Iterator[agent_pb2.PoolDevice]:
    """In the wanted order; devices that are only stored come last."""
    places = {name: number for number, names in enumerate(publication.stored) for name in names}
    wanted: set[str] = set()
    for group in publication.desired:
        for device in group:
            name = text_at(device, "name")
            wanted.add(name)
            state = PoolDeviceState.PUBLISHED if name in places else PoolDeviceState.MISSING
            yield agent_pb2.PoolDevice(
                name=name, state=state, slice=places.get(name), taints=_taints(device), why=reasons.get(name, "")
            )
    for name, number in places.items():
        if name not in wanted:
            yield agent_pb2.PoolDevice(name=name, state=PoolDeviceState.SURPLUS, slice=number)


def _device(state: PoolDeviceState, each: Withheld) -> agent_pb2.PoolDevice:
    return agent_pb2.PoolDevice(name=each.device.name, state=state, why=each.reason)


def _taints(device: JsonObject) -> list[str]:
    """As ``key=value:effect``."""
    taints = device.get("taints")
    return [_taint(taint) for taint in taints if isinstance(taint, dict)] if isinstance(taints, list) else []


def _taint(taint: JsonObject) -> str:
    value = text_at(taint, "value")
    return f"{text_at(taint, 'key')}{'=' if value else ''}{value}:{text_at(taint, 'effect')}"
