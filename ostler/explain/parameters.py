"""Opaque parameters that ostler will refuse: the scheduler does not look at them, and the pod would wait on its node.

The code that prepares claims judges them. Parameters are ostler's if they name a driver of its slices, and so are those
for another driver if its devices carry that driver's attributes (``dra.alsoPublishAs``). A snapshot has no parameters,
and of a cluster's claims only the question's have theirs: parameters that were not read are not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from driver.claims.model import AllocatedConfig, ClaimError, ConfigSource
from driver.devices.description import MOVES
from driver.devices.shares import consumed
from driver.names import Peer
from driver.parameters.decoding import (
    DEVICE_KINDS,
    NicConfig,
    asks_for_features,
    decode,
    of_another_vendor,
    wrong_kind,
)
from driver.parameters.errors import ParameterError
from driver.parameters.interface import InterfaceParameters
from driver.parameters.interface_fit import InterfaceTarget, check_moves_some, check_together, settled
from driver.parameters.peers import check_kind, check_served, is_for
from driver.parameters.sharing import SharingParameters, SharingTarget, check_one_daemon, check_one_limit, check_sharing
from kube.bodies import JsonObject, object_at, text_at
from node.inventory.model import DeviceKind
from node.sharing import Amounts, SharingStrategy
from ostler.explain.kept import REPLACED
from scheduling.allocator.claims import Claim
from scheduling.explain.placing import title_of
from scheduling.explain.state import Kind, Objects, State, objects_at
from scheduling.explain.verdict import PlacedDevice

OURS = "ostler.dev"
"""The driver's name unless ``dra.driverName`` says otherwise."""
_NVIDIA = "nvidia"
_SHARED_FACT = "numaNode"
"""An attribute that other drivers publish in a foreign domain."""


def refusals(state: State, claim: JsonObject, given: Sequence[PlacedDevice]) -> Iterator[str]:
    """A sentence for each of the claim's parameters that ostler refuses if these are its devices."""
    configs = list(_configs(state, claim))
    if not configs and not any(each.driver == OURS and (each.shared or _may_move(each)) for each in given):
        return
    published = _published(state.slices, {_key(each) for each in given})
    counting: dict[PlacedDevice, SharingParameters] = {}
    interfaces: dict[PlacedDevice, list[tuple[InterfaceParameters, bool]]] = {}
    for driver, config in sorted(configs, key=lambda each: each[1].source is not ConfigSource.CLASS):
        concerned = [(each, published.get(_key(each), {})) for each in given if _is_named(each, config)]
        try:
            _check_is_for_some(driver, config, concerned)
            sections = [(each, _section(driver, config, each, body)) for each, body in concerned]
        except ParameterError as error:
            yield f"{concerned[0][0].driver} will refuse claim {title_of(claim)}: {error}"
            continue
        counting |= {each: section for each, section in sections if isinstance(section, SharingParameters)}
        for each, section in sections:
            if isinstance(section, InterfaceParameters):
                interfaces.setdefault(each, []).append((section, each.request in config.requests))
    try:
        moved = [
            settled(_interface_target(each, published.get(_key(each), {})), interfaces.get(each, [])) for each in given
        ]
        check_together([each for each in moved if each is not None])
        _check_together(counting, published)
        check_one_limit(_shares_by_mps(given, published))
    except ClaimError as error:
        yield f"{given[0].driver} will refuse claim {title_of(claim)}: {error}"


def _key(given: PlacedDevice) -> tuple[str, str, str]:
    return given.driver, given.pool, given.device


def _is_named(given: PlacedDevice, config: AllocatedConfig) -> bool:
    """Whether the parameters are for all requests, or for this device's."""
    requests = config.requests
    return not requests or given.request in requests or given.request.partition("/")[0] in requests


def _check_is_for_some(
    driver: str, config: AllocatedConfig, concerned: Sequence[tuple[PlacedDevice, JsonObject]]
) -> None:
    """Raise ``ParameterError`` for sharing or an interface for all requests that fits no device of the claim."""
    if config.requests:
        return
    if config.peer is not None:
        peers = [(each, body) for each, body in concerned if config.peer in _domains(body, each.driver)]
        section = check_served(config, peers[0][0].driver) if peers else None
        if isinstance(section, InterfaceParameters):
            check_moves_some(section, [_interface_target(*each) for each in peers])
            return
        if section is None or section.is_served_by_every_gpu:
            return
        targets = [_target(each, body) for each, body in peers]
        if not any(is_for(config, target) for target in targets):
            check_kind(section, config, targets[0])
    elif driver == OURS:
        own = [(each, _text(body, "type")) for each, body in concerned if each.driver == OURS]
        content = decode(config) if own else None
        interface = content.interface if isinstance(content, NicConfig) else None
        if content is None or (interface is None and (isinstance(content, NicConfig) or content.sharing is None)):
            return
        if not any(not kind or kind in DEVICE_KINDS[type(content)] for _, kind in own):
            given, kind = own[0]
            raise wrong_kind(config, content, given.request, given.device, kind)
        if interface is not None:
            check_moves_some(interface, [_interface_target(*each) for each in concerned if _is_nic(*each)])


def _may_move(given: PlacedDevice) -> bool:
    """Whether its network interface may move, by the device's name: its slice need not be read for all others."""
    return given.device.startswith((f"{DeviceKind.NIC}-", f"{DeviceKind.RDMA}-"))


def _is_nic(given: PlacedDevice, body: JsonObject) -> bool:
    return given.driver == OURS and _text(body, "type") in DEVICE_KINDS[NicConfig]


def _section(
    driver: str, config: AllocatedConfig, given: PlacedDevice, body: JsonObject
) -> SharingParameters | InterfaceParameters | None:
    """The settings that the parameters ask for; raises ``ParameterError`` for parameters that will be refused."""
    target = _target(given, body)
    if config.peer is not None and config.peer in _domains(body, given.driver):
        section = check_served(config, given.driver)
        if isinstance(section, SharingParameters) and not section.is_served_by_every_gpu and not is_for(config, target):
            if given.request in config.requests:
                check_kind(section, config, target)
            return None
        return section
    if driver == given.driver == OURS:
        content = decode(config)
        if target.kind not in DEVICE_KINDS[type(content)]:
            if given.request in config.requests and _text(body, "type"):
                raise wrong_kind(config, content, given.request, given.device, target.kind)
            return None
        if target.vendor != _NVIDIA and asks_for_features(content):
            raise of_another_vendor(config.place, given.device, target.vendor)
        return content.interface if isinstance(content, NicConfig) else content.sharing
    return None


def _check_together(
    sections: Mapping[PlacedDevice, SharingParameters], published: Mapping[tuple[str, str, str], JsonObject]
) -> None:
    """Raise ``ParameterError`` if the sections that count do not fit their devices, or each other."""
    by_mps: list[SharingParameters] = []
    uuids = []
    for given, section in sections.items():
        body = published.get(_key(given), {})
        check_sharing(section, _target(given, body))
        if section.strategy is SharingStrategy.MPS:
            by_mps.append(section)
            uuids.append(_text(body, "uuid") or given.device)
    check_one_daemon(by_mps)
    if by_mps:
        by_mps[0].limits(uuids)


def _shares_by_mps(
    given: Iterable[PlacedDevice], published: Mapping[tuple[str, str, str], JsonObject]
) -> Mapping[str, Sequence[tuple[str, Amounts]]]:
    """By request the shares whose limits are a container's variables."""
    found: dict[str, list[tuple[str, Amounts]]] = {}
    for each in given:
        body = published.get(_key(each), {})
        if each.driver == OURS and _text(body, "sharing") == SharingStrategy.MPS:
            amounts = consumed({one.path: one.value for one in each.consumed if one.value is not None}, OURS)
            found.setdefault(each.request.partition("/")[0], []).append((each.device, amounts))
    return found


def _target(given: PlacedDevice, body: JsonObject) -> SharingTarget:
    """The facts of the slice about the device; a missing fact does not prevent sharing."""
    major, _, rest = _text(body, "cudaComputeCapability").partition(".")
    minor = rest.partition(".")[0]
    return SharingTarget(
        given.request,
        given.device,
        _text(body, "vendor") or _NVIDIA,
        _text(body, "type") or DeviceKind.GPU,
        (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None,
        is_share=body.get("allowMultipleAllocations") is True,
        looks_on=given.admin,
    )


def _interface_target(given: PlacedDevice, body: JsonObject) -> InterfaceTarget:
    """The facts of the slice that decide what the device's interface can have."""
    return InterfaceTarget(
        given.request,
        given.device,
        _text(body, "resource"),
        _text(body, MOVES) == str(True),
        _text(body, "ifName"),
        _text(body, "linkType"),
        _text(body, "sriovFunction"),
        _text(body, "pfName"),
        switchdev=_text(body, "eswitchMode") == "switchdev",
        driver=_text(body, "driver"),
        looks_on=given.admin,
    )


def _text(body: JsonObject, fact: str) -> str:
    """An attribute of the device in its driver's own domain, as text."""
    attributes = object_at(body, "attributes") or object_at(body, "basic", "attributes")
    for name, found in attributes.items():
        if name in (fact, f"{OURS}/{fact}"):
            return next((str(text) for text in object_at(found).values()), "")
    return ""


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


def _published(
    slices: Iterable[JsonObject], wanted: set[tuple[str, str, str]]
) -> dict[tuple[str, str, str], JsonObject]:
    """These devices as their slices have them."""
    found: dict[tuple[str, str, str], JsonObject] = {}
    for body in slices:
        driver, pool = text_at(body, "spec", "driver"), text_at(body, "spec", "pool", "name")
        if not any((driver, pool) == key[:2] for key in wanted):
            continue
        for device in objects_at(body, "spec", "devices"):
            key = driver, pool, text_at(device, "name")
            if key in wanted:
                found[key] = device
    return found


def _domains(device: JsonObject, driver: str) -> Iterator[Peer]:
    attributes = object_at(device, "attributes") or object_at(device, "basic", "attributes")
    for name in attributes:
        domain, _, fact = name.partition("/")
        yield from (peer for peer in Peer if peer.value == domain != driver and fact != _SHARED_FACT)
