"""A recorded node as a cluster would see it: its Node, the slices that the agent would publish, ostler's DeviceClasses.

The agent's own code decides, for a node without any holds and an API server that keeps device taints. This machine's
configuration, environment and state do not matter.
"""

from __future__ import annotations

from pathlib import Path

from driver.devices.description import counter_set, slice_device
from driver.devices.partitions import partitioned
from driver.devices.view import DoorView, door_offer, view_of
from driver.names import Peer
from driver.publishing.publisher import parted_gpu
from driver.slices.content import new_object
from driver.slices.model import Pool, node_owner, pack
from driver.slices.planning import ByIndex
from kube.bodies import JsonObject
from node.clocks import SYSTEM
from node.door_policy import NodeDoors, Taints, TaintSupport, effective
from node.eligibility import offer
from node.inventory.identity import IdentityStore
from node.inventory.model import Snapshot
from node.inventory.recordings.source import RecordedSource, RecordingError
from node.inventory.scan import Scanner
from node.ledger.offer_context import NOTHING_HELD
from node.rules import Door, Doors, Rule
from node.values import Value, replace, value
from ostler.config.errors import ConfigErrors
from ostler.config.load import load, load_bytes
from ostler.config.settings import Settings
from sandbox.cluster.samples import device_classes
from sandbox.configuration import configuration
from sandbox.nodes import UnknownNodeError, recording
from scheduling.explain.state import BadQuestion, State

MAX_PODS = "110"
"""Pods of a node: the kubelet's default."""


@value
class RecordedNode(Value):
    """A node with its ``slices``, which have names but no owner, because only a cluster knows the owner's UID.

    ``node``: a Node whose allocatable has what rules offer through the plugin door alone. A device at both doors is in
    the slices only, because it can be given once.
    """

    name: str
    origin: str
    node: JsonObject
    slices: tuple[JsonObject, ...]
    classes: tuple[JsonObject, ...]

    @property
    def state(self) -> State:
        """A cluster of this node alone."""
        return State(origin=self.origin, slices=self.slices, classes=self.classes, nodes=(self.node,))


def recorded_node(source: str, config: Path | None = None, node_name: str = "") -> RecordedNode:
    """The node of a recording, by the name of a shipped one or by its file.

    ``config``: the agent's configuration; None for the sandbox's, which offers every GPU and NIC at both doors.
    ``node_name``: the node's name, by default the file's. Raises ``BadQuestion``.
    """
    file = _file(source)
    name = node_name or file.stem
    settings = _settings(file, config, name)
    try:
        snapshot = _scanned(settings, file)
    except RecordingError as error:
        raise BadQuestion(str(error)) from error
    support = TaintSupport(Taints.KEPT, "a server that keeps taints is assumed")
    rules = effective(settings.rules, NodeDoors(), support).rules
    parted = partitioned(snapshot, rules)
    view = view_of(parted, door_offer(parted, rules), NOTHING_HELD, rules)
    return RecordedNode(
        name,
        source,
        _node(name, _of_plugins(snapshot, rules)),
        _slices_of(view, settings.dra.driver_name, name, settings.dra.peers),
        tuple(device_classes()),
    )


def _file(source: str) -> Path:
    try:
        return Path(source) if Path(source).exists() else recording(source)
    except UnknownNodeError as error:
        raise BadQuestion(f"{error}; or give the file of a node that 'ostler record' wrote") from error


def _settings(file: Path, config: Path | None, name: str) -> Settings:
    flags = {"--recorded": str(file), "--node-name": name, "--state-dir": "/nonexistent"}
    try:
        if config is not None:
            return load(config, flags, {}).settings
        overrides = file.with_suffix(".topology.xml")
        text = configuration(mig=True, topology=overrides if overrides.exists() else None, both=True)
        return load_bytes("the sandbox's configuration", text.encode(), flags, {}).settings
    except ConfigErrors as error:
        raise BadQuestion(f"the configuration is not usable\n{error}") from error


def _scanned(settings: Settings, file: Path) -> Snapshot:
    source = RecordedSource(file)
    source.read()  # Raises, where the scanner would only report a failed source.
    scanner = Scanner((source,), IdentityStore(None), SYSTEM)
    scanner.override(settings.topology_overrides)
    return replace(scanner.scan(Snapshot()), generation=1)


def _slices_of(view: DoorView, driver: str, node: str, peers: tuple[Peer, ...] = ()) -> tuple[JsonObject, ...]:
    """The slices that the controller writes for a new pool of the publisher.

    The names are the controller's except for the random letters. There is no owner, because its UID belongs to a
    cluster.
    """
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


def _of_plugins(snapshot: Snapshot, rules: tuple[Rule, ...]) -> dict[str, int]:
    """How many devices of each resource the plugin door offers that no claim can get."""
    found: dict[str, int] = {}
    for each in offer(snapshot, rules, NOTHING_HELD, Door.PLUGIN).resources:
        if each.rule.door is Doors.PLUGIN:
            found[each.resource] = sum(item.healthy for item in each.devices)
    return found


def _node(name: str, resources: dict[str, int]) -> JsonObject:
    allocatable: JsonObject = {"pods": MAX_PODS, **{resource: str(count) for resource, count in resources.items()}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": allocatable},
    }
