"""The agent's settings as frozen values: the result of reading the configuration, and all that other parts see of it.

Invariants: every path is absolute except ``InventorySettings.recorded``; durations are seconds; a setting that was not
given already has its default, so that no reader needs to know defaults. ``changes`` describes in sentences what a
reload changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from driver.names import MetadataVersion, Peer
from node.health.policy import Policy
from node.ledger.processes import DAEMONS
from node.partitions import MigLayout
from node.rules import Doors, Rule
from node.topology.model import PlaceOverride
from node.values import Value, replace, value

if TYPE_CHECKING:
    from node.virtual_functions import VirtualFunctionRule

INSTANCE = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""The form of an instance's name: a DNS label, which is also a safe file name."""


MPS_SIZE = 256 << 20
"""Bytes of an MPS daemon's file system, unless the configuration says otherwise."""


def instance_socket(state_dir: Path, instance: str) -> Path:
    """The socket on which an instance answers probes; instances of a node find each other in its folder."""
    return state_dir / "http" / f"{instance}.sock"


class RegistrationChoice(StrEnum):
    """How a resource is registered with the kubelet."""

    AUTO = "auto"
    """By the plugin registry if the kubelet watches it, else by Register."""
    REGISTRY = "registry"
    """Only by a socket in the plugin registry directory, which the kubelet watches."""
    REGISTER = "register"
    """Only by calling Register on the kubelet's socket."""


class LogLevel(StrEnum):
    """The least important level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a log line looks."""

    TEXT = "text"
    JSON = "json"


class MpsFileSystem(StrEnum):
    """Where the MPS daemons' pipes, logs and shared memory are stored."""

    PER_DAEMON = "perDaemon"
    """Each daemon has a file system, which the agent mounts."""
    PROVIDED = "provided"
    """All daemons share the one at ``mpsRoot``, which somebody else has mounted."""


class MigStrategy(StrEnum):
    """The default rules for MIG devices (NVIDIA's names)."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


@value
class KubeletSettings(Value):
    """The kubelet's folders. ``device_plugin_dir`` is fixed, ``registry_dir`` follows the kubelet's root."""

    device_plugin_dir: Path = Path("/var/lib/kubelet/device-plugins")
    registry_dir: Path = Path("/var/lib/kubelet/plugins_registry")
    registration: RegistrationChoice = RegistrationChoice.AUTO


@value
class RootSettings(Value):
    """Roots of the kernel's file systems, as the agent sees them."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")


@value
class NvidiaSettings(Value):
    """Where NVIDIA's driver is.

    ``driver_root`` and ``dev_root`` are host paths and end up in answers; the ``..._mount`` paths are where the agent
    sees the same folders. ``library``: libnvidia-ml.so.1 itself, None to search for it. ``full``: a rule gives the
    driver's files by CDI, so that they have to be listed. ``mps_root``: folder for MPS, at the same path for the agent
    and on the host. ``mps_size``: bytes of each MPS daemon's file system; None where ``mps_root`` is a file system that
    the operator provides for all of them.
    """

    driver_root: str = "/"
    driver_root_mount: Path = Path("/")
    dev_root: str = "/"
    dev_root_mount: Path = Path("/")
    library: Path | None = None
    full: bool = False
    mps_root: str = "/run/nvidia/mps"
    mps_size: int | None = MPS_SIZE


@value
class CdiSettings(Value):
    """CDI specs: ``directories`` are read for specs of others, ``directory`` is where ours are written."""

    directories: tuple[Path, ...] = (Path("/etc/cdi"), Path("/var/run/cdi"))
    directory: Path = Path("/var/run/cdi")


class EventsChoice(StrEnum):
    """Whether events are posted on the Node."""

    AUTO = "auto"
    """In a pod with a service account or with a kubeconfig, when the node's name is known and its hardware is real."""
    ON = "on"
    """Always; if the API server does not answer, the status says why."""
    OFF = "off"
    """Never: the agent does not talk to the API server."""


class OnOff(StrEnum):
    """Whether an option is on that is off by default."""

    ON = "on"
    OFF = "off"


@value
class KubernetesSettings(Value):
    """How the API server is used. ``kubeconfig``: None for the pod's service account.

    ``door_by_node``: the label and the annotation of the own Node override the door of a rule. ``patch_allocatable``:
    the Node's allocatable is written at once, not when the kubelet reports it. ``recorded_devices``: the plugin door
    prefers the devices that a scheduler has recorded for pods.
    """

    events: EventsChoice = EventsChoice.AUTO
    kubeconfig: Path | None = None
    door_by_node: bool = False
    patch_allocatable: bool = False
    recorded_devices: bool = False


@value
class HoldsSettings(Value):
    """Holds. ``ignore_processes``: names of programs, with ``*``, that do not count as users of a device."""

    ignore_processes: tuple[str, ...] = DAEMONS


@value
class DraSettings(Value):
    """The DRA door. ``driver_name``: of the DRA driver, and the domain of its attributes and CDI devices.

    ``plugins_dir``: the kubelet's folder of plugins' data, in which the driver has a folder of its own name. ``peers``:
    other drivers under whose names the attributes are published as well. ``metadata_versions``: of the metadata files
    that containers get, none for no files; ``metadata_required``: whether a claim is refused if they cannot be written.
    ``nri_socket``: of the container runtime. The effect of taints is a part of ``health``.
    """

    driver_name: str = "ostler.dev"
    plugins_dir: Path = Path("/var/lib/kubelet/plugins")
    peers: tuple[Peer, ...] = ()
    metadata_versions: tuple[MetadataVersion, ...] = ()
    metadata_required: bool = False
    nri_socket: Path = Path("/var/run/nri/nri.sock")


@value
class InventorySettings(Value):
    """``max_interval``: most seconds between two scans. ``recorded``: replay this recorded node, not the hardware."""

    max_interval: float = 60.0
    recorded: Path | None = None


@value
class LogSettings(Value):
    """The settings of the log."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT


@value
class Settings(Value):
    """All settings. ``http``: ``host:port`` of probes and metrics, None for off. ``rules``: in order, first match.

    ``instance``: this agent's name among those that run beside each other during an update; empty for none.
    ``topology_overrides``: what the file ``topology_file`` says; empty without a file. ``mig_config``: a file of
    mig-parted and the name of the configuration in it; ``mig_layouts``: what that says. ``virtual_functions``: those
    that are made, in order, first match.
    """

    node_name: str = ""
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    roots: RootSettings = field(default_factory=RootSettings)
    nvidia: NvidiaSettings = field(default_factory=NvidiaSettings)
    cdi: CdiSettings = field(default_factory=CdiSettings)
    inventory: InventorySettings = field(default_factory=InventorySettings)
    log: LogSettings = field(default_factory=LogSettings)
    state_dir: Path = Path("/var/lib/ostler")
    socket: Path = Path("/run/ostler/ostler.sock")
    http: str | None = "0.0.0.0:9410"
    instance: str = ""
    rules: tuple[Rule, ...] = ()
    topology_file: Path | None = None
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    holds: HoldsSettings = field(default_factory=HoldsSettings)
    health: Policy = field(default_factory=Policy)
    dra: DraSettings = field(default_factory=DraSettings)
    topology_overrides: tuple[PlaceOverride, ...] = ()
    mig_config: tuple[Path, str] | None = None
    mig_layouts: tuple[MigLayout, ...] = ()
    virtual_functions: tuple[VirtualFunctionRule, ...] = ()


FIXED = (
    "node_name",
    "kubelet",
    "roots",
    "nvidia",
    "cdi",
    "inventory",
    "state_dir",
    "socket",
    "http",
    "instance",
    "kubernetes",
    "holds",
    "dra",
)
"""Settings that take effect only with a restart."""


def changes(old: Settings, new: Settings) -> tuple[str, ...]:
    """The changes that a reload puts in force, and those that wait for a restart."""
    found = []
    if new.rules != old.rules:
        found.append(f"rules: {len(old.rules)} before, {len(new.rules)} now, in force")
        found.extend(_moved(_doors(old.rules), _doors(new.rules)))
    if new.health != old.health:
        found.append("health: the new configuration is in force")
    if new.log != old.log:
        found.append(f"log: {new.log.level} {new.log.format}, in force")
    if new.topology_overrides != old.topology_overrides:
        found.append(f"topology: {len(new.topology_overrides)} devices placed by the file, in force")
    if new.mig_layouts != old.mig_layouts:
        found.append(f"nvidia.migConfig: {len(new.mig_layouts)} layouts, in force")
    if new.virtual_functions != old.virtual_functions:
        was, now = len(old.virtual_functions), len(new.virtual_functions)
        found.append(f"virtualFunctions: {was} items before, {now} now, in force")
    return (*found, *(f"{name}: needs a restart, the old value stays in force" for name in kept(old, new)))


def rules_in_force(old: Settings, new: Settings) -> tuple[Rule, ...]:
    """The new rules with the old settings that stay in force: containers look for MPS where its daemons run."""
    root = old.nvidia.mps_root
    return tuple(
        rule
        if rule.edits.mps is None or rule.edits.mps[0] == root
        else replace(rule, edits=replace(rule.edits, mps=(root, rule.edits.mps[1])))
        for rule in new.rules
    )


def kept(old: Settings, new: Settings) -> tuple[str, ...]:
    """Names of settings that differ and take effect only with a restart."""
    return tuple(name for name in FIXED if getattr(new, name) != getattr(old, name))


def _doors(rules: Iterable[Rule]) -> dict[str, frozenset[Doors]]:
    found: dict[str, frozenset[Doors]] = {}
    for rule in rules:
        found[rule.resource] = found.get(rule.resource, frozenset()) | {rule.door}
    return found


def _moved(old: dict[str, frozenset[Doors]], new: dict[str, frozenset[Doors]]) -> list[str]:
    """A sentence for each resource that moved to other doors; devices in use move later."""
    return [
        f"{name}: door {_words(old[name])} before, {_words(doors)} now; a device that is in use moves when it is free"
        for name, doors in new.items()
        if name in old and old[name] != doors
    ]


def _words(doors: frozenset[Doors]) -> str:
    return " and ".join(sorted(doors))
