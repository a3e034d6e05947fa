"""Opaque parameters that ostler will refuse: the scheduler does not look at them, and the pod would wait on its node.

Judged by the code that prepares claims. Parameters are ostler's where they name a driver of its slices, and those for
another driver are where its devices carry that driver's attributes (``dra.alsoPublishAs``). A snapshot has no
parameters, and of a cluster's claims only those asked about have theirs: nothing is said of parameters that were not
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from driver.claims.model import AllocatedConfig, ConfigSource
from driver.names import Peer
from driver.parameters.decoding import ParameterError, decode
from driver.parameters.peers import check_served
from kube.bodies import JsonObject, object_at, text_at
from ostler.explain.kept import REPLACED
from scheduling.allocator.claims import Claim
from scheduling.explain.placing import title_of
from scheduling.explain.state import Kind, Objects, State, objects_at
from scheduling.explain.verdict import PlacedDevice

OURS = "ostler.dev"
"""The driver's name unless ``dra.driverName`` says otherwise."""
_SHARED_FACT = "numaNode"
"""An attribute that other drivers publish in a domain that is not theirs."""


def refusals(state: State, claim: JsonObject, given: Sequence[PlacedDevice]) -> Iterator[str]:
    """A sentence for each of the claim's parameters that ostler refuses, were these its devices."""
    configs = list(_configs(state, claim))
    if not configs:
        return
    peers = _published_as(state.slices, {(each.driver, each.pool, each.device) for each in given})
    for driver, config in configs:
        for each in given:
            requests = config.requests
            if requests and each.request not in requests and each.request.partition("/")[0] not in requests:
                continue
            error = _refused(driver, config, each, peers.get((each.driver, each.pool, each.device), frozenset()))
            if error is not None:
                yield f"{each.driver} will refuse claim {title_of(claim)}: {error}"
                break


def _refused(
    driver: str, config: AllocatedConfig, given: PlacedDevice, peers: frozenset[Peer]
) -> ParameterError | None:
    try:
        if config.peer is not None and config.peer in peers:
            check_served(config, given.driver)
        elif driver == given.driver == OURS:
            decode(config)
    except ParameterError as error:
        return error
    return None


def _configs(state: State, claim: JsonObject) -> Iterator[tuple[str, AllocatedConfig]]:
    """Those of the claim's classes, each for the requests that name the class, and those of the claim."""
    named: dict[str, list[str]] = {}
    for choice in Claim(claim).requests:
        for request in choice.alternatives:
            named.setdefault(request.class_name, []).append(request.name)
    for name, requests in named.items():
        body = state.find(Kind.CLASS, name)
        if body is not None:
            place = f"DeviceClass {name}: spec.config"
            yield from _listed(objects_at(body, "spec", "config"), place, ConfigSource.CLASS, tuple(requests))
    yield from _listed(objects_at(claim, "spec", "devices", "config"), "spec.devices.config", ConfigSource.CLAIM, ())


def _listed(
    configs: Objects, place: str, source: ConfigSource, requests: tuple[str, ...]
) -> Iterator[tuple[str, AllocatedConfig]]:
    for index, config in enumerate(configs):
        opaque = object_at(config, "opaque")
        parameters, driver = opaque.get("parameters"), text_at(opaque, "driver")
        if not isinstance(parameters, dict) or parameters in ({}, REPLACED):
            continue  # Not read.
        own = config.get("requests")
        names = tuple(each for each in own if isinstance(each, str)) if isinstance(own, list) else requests
        peer = next((peer for peer in Peer if peer.value == driver), None)
        yield driver, AllocatedConfig(source, names, parameters, f"{place}[{index}].opaque.parameters", peer)


def _published_as(
    slices: Iterable[JsonObject], wanted: set[tuple[str, str, str]]
) -> dict[tuple[str, str, str], frozenset[Peer]]:
    """The drivers, other than their own, whose attributes these devices carry."""
    found: dict[tuple[str, str, str], frozenset[Peer]] = {}
    for body in slices:
        driver, pool = text_at(body, "spec", "driver"), text_at(body, "spec", "pool", "name")
        if not any((driver, pool) == key[:2] for key in wanted):
            continue
        for device in objects_at(body, "spec", "devices"):
            key = driver, pool, text_at(device, "name")
            if key in wanted:
                found[key] = frozenset(_domains(device, driver))
    return found


def _domains(device: JsonObject, driver: str) -> Iterator[Peer]:
    attributes = object_at(device, "attributes") or object_at(device, "basic", "attributes")
    for name in attributes:
        domain, _, fact = name.partition("/")
        yield from (peer for peer in Peer if peer.value == domain != driver and fact != _SHARED_FACT)
