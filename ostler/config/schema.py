"""Our configuration format, described once: fields, kinds, defaults and help.

Reading, the table of flags, ``ostler config schema`` and the reference page all come from this description, so that
they cannot disagree. What fields mean together is judged in ``resources`` and ``building``.
"""

from __future__ import annotations

from enum import StrEnum

from driver.names import Peer, TaintEffect
from node.ledger.processes import DAEMONS
from node.rules import DeviceIds, Doors
from ostler.config.device_fields import DEVICES
from ostler.config.health import HEALTH
from ostler.config.option_fields import DEFAULTS, OPTIONS
from ostler.config.scalars import (
    SUBDOMAIN,
    AnyPath,
    Boolean,
    Choice,
    DurationType,
    HostPath,
    JsonObject,
    ListenAddress,
    Text,
)
from ostler.config.section import ConfigField, ConfigList, Section, section
from ostler.config.settings import (
    INSTANCE,
    DoorByNode,
    EventsChoice,
    LogFormat,
    LogLevel,
    MigStrategy,
    PatchAllocatable,
    RegistrationChoice,
)

API_VERSION = "ostler.dev/v1alpha1"
KIND = "Config"


class _ApiVersion(StrEnum):
    V1ALPHA1 = API_VERSION


class _Kind(StrEnum):
    CONFIG = KIND


API_VERSION_FIELD = ConfigField(
    "apiVersion", Choice(_ApiVersion), _ApiVersion.V1ALPHA1, "Version of this format.", required=True
)
KIND_FIELD = ConfigField("kind", Choice(_Kind), _Kind.CONFIG, "Kind of this document.", required=True)
NODE_NAME = ConfigField(
    "nodeName",
    Text(
        rf"(?=.{{1,253}}$){SUBDOMAIN}", "a node name of lower-case letters, digits, - and .", "worker-1", optional=True
    ),
    "",
    "Name of the node in Kubernetes; never guessed. Needed only by parts that talk to the API server.",
)

DEVICE_PLUGIN_DIR = ConfigField(
    "devicePluginDir",
    HostPath("/var/lib/kubelet/device-plugins"),
    "/var/lib/kubelet/device-plugins",
    "Folder of the kubelet's registration socket; the same whatever the kubelet's root is.",
)
REGISTRY_DIR = ConfigField(
    "pluginsRegistryDir",
    HostPath("/var/lib/kubelet/plugins_registry"),
    "/var/lib/kubelet/plugins_registry",
    "Folder that the kubelet watches for plugins; follows the kubelet's root.",
)
REGISTRATION = ConfigField(
    "registration",
    Choice(RegistrationChoice),
    RegistrationChoice.AUTO,
    "How resources are registered: auto uses the watched folder where the kubelet answers there, else Register.",
)
KUBELET = section(
    "kubelet", Section(DEVICE_PLUGIN_DIR, REGISTRY_DIR, REGISTRATION), "Where and how the kubelet is met."
)

SYS_ROOT = ConfigField("sys", HostPath("/sys"), "/sys", "Where the agent sees the host's /sys.")
PROC_ROOT = ConfigField("proc", HostPath("/proc"), "/proc", "Where the agent sees the host's /proc.")
ROOTS = section("roots", Section(SYS_ROOT, PROC_ROOT), "Roots of the kernel's file systems.")

STATE_DIRECTORY = ConfigField(
    "directory", HostPath("/var/lib/ostler"), "/var/lib/ostler", "Folder of what is remembered, and of the lock."
)
STATE = section("state", Section(STATE_DIRECTORY), "What survives a restart.")
SOCKET = ConfigField(
    "socket",
    HostPath("/run/ostler/ostler.sock", socket=True),
    "/run/ostler/ostler.sock",
    "Socket on which the running agent answers the command line.",
)
ADDRESS = ConfigField(
    "address",
    ListenAddress(),
    "0.0.0.0:9410",
    "Address of /livez, /readyz and /metrics; off or empty for none.",
)
INSTANCE_NAME = ConfigField(
    "instance",
    Text(INSTANCE, "a name of at most 63 lower-case letters, digits and -", "v1-2-0-5f3a", optional=True),
    "",
    "Name of this agent where two run side by side during an update; probes then are /livez/NAME and /readyz/NAME.",
)
HTTP = section("http", Section(ADDRESS), "Probes and metrics.")

LOG_LEVEL = ConfigField("level", Choice(LogLevel), LogLevel.INFO, "Least important level that is logged.")
LOG_FORMAT = ConfigField("format", Choice(LogFormat), LogFormat.TEXT, "Lines for people, or JSON.")
LOG = section("log", Section(LOG_LEVEL, LOG_FORMAT), "Logging.")

MAX_INTERVAL = ConfigField(
    "maxInterval", DurationType("500ms", "60s"), 60.0, "Most time between two scans; events cause scans sooner."
)
RECORDED = ConfigField("recorded", AnyPath(), None, "Recorded node to replay in place of this node's hardware.")
INVENTORY = section("inventory", Section(MAX_INTERVAL, RECORDED), "How devices are found.")

CDI_DIRECTORY = ConfigField(
    "directory", HostPath("/var/run/cdi"), "/var/run/cdi", "Folder in which CDI specs are written."
)
CDI_SPEC_DIRECTORIES = ConfigField(
    "specDirectories",
    ConfigList(HostPath("/etc/cdi"), fewest=1),
    ("/etc/cdi", "/var/run/cdi"),
    "Folders in which CDI specs of others are looked for (cdiMode delegate).",
)
CDI = section("cdi", Section(CDI_DIRECTORY, CDI_SPEC_DIRECTORIES), "Container Device Interface.")

EVENTS = ConfigField(
    "events",
    Choice(EventsChoice),
    EventsChoice.AUTO,
    "Events on the Node: auto posts them in a pod with an account or by a kubeconfig, where nodeName is given.",
)
KUBECONFIG = ConfigField(
    "kubeconfig",
    HostPath("/etc/kubernetes/kubelet.conf", optional=True),
    "",
    "Kubeconfig to reach the API server with; empty: the pod's service account.",
)
DOOR_BY_NODE = ConfigField(
    "doorByNode",
    Choice(DoorByNode),
    DoorByNode.OFF,
    "on: the label ostler.dev/door and the annotation ostler.dev/doors of the own Node go before the door of a rule.",
)
PATCH_ALLOCATABLE = ConfigField(
    "patchAllocatable",
    Choice(PatchAllocatable),
    PatchAllocatable.OFF,
    "on: the agent writes the healthy devices of its resources into status.allocatable of the own Node at once, so that"
    " the scheduler need not wait for the kubelet's report.",
)
KUBERNETES = section(
    "kubernetes", Section(EVENTS, KUBECONFIG, DOOR_BY_NODE, PATCH_ALLOCATABLE), "The Kubernetes API server."
)

IGNORE_PROCESSES = ConfigField(
    "ignoreProcesses",
    ConfigList(
        Text(
            r"[^/\s\x00-\x1f\x7f]{1,63}",
            "a program name of at most 63 characters without blanks and slashes; * stands for any",
            "nvidia-smi",
        )
    ),
    DAEMONS,
    "Programs that are no users of a device, such as daemons of its driver; * stands for any characters. A process of"
    " another program that is left on a device when its pod or claim is gone keeps the device from others.",
)
HOLDS = section("holds", Section(IGNORE_PROCESSES), "Who has which device.")

DRIVER_NAME = ConfigField(
    "driverName",
    Text(
        rf"(?=.{{1,63}}$){SUBDOMAIN}", "a domain name of at most 63 lower-case letters, digits, - and .", "ostler.dev"
    ),
    "ostler.dev",
    "Name of the DRA driver: in its slices, and the domain of their attributes; other nodes must have the same.",
)
PLUGINS_DIR = ConfigField(
    "pluginsDirectory",
    HostPath("/var/lib/kubelet/plugins", optional=True),
    "",
    "Folder in which the kubelet's plugins keep data and sockets; empty: plugins, beside pluginsRegistryDir.",
)
ALSO_PUBLISH_AS = ConfigField(
    "alsoPublishAs",
    ConfigList(Choice(Peer)),
    (),
    "Other DRA drivers in whose domain the attributes are published as well, so that claims for them run unchanged.",
)
TAINT_EFFECT = ConfigField(
    "taintEffect",
    Choice(TaintEffect),
    TaintEffect.NO_SCHEDULE,
    "What the taint of a device that is out of order does where health.effects does not say: NoSchedule keeps new"
    " claims away (a device that left the bus evicts all the same), NoExecute evicts the pods that have it, too. One"
    " whose state is unknown never costs a pod.",
)
DRA = section(
    "dra",
    Section(DRIVER_NAME, PLUGINS_DIR, ALSO_PUBLISH_AS, TAINT_EFFECT),
    "Dynamic Resource Allocation, for the doors dra and both.",
)

TOPOLOGY_FILE = ConfigField(
    "file",
    HostPath("/etc/ostler/topology.yaml", optional=True),
    "",
    "File that says where devices are, for machines whose PCIe tree does not tell; empty for none.",
)
TOPOLOGY = section("topology", Section(TOPOLOGY_FILE), "Where devices are.")

DRIVER_ROOT = ConfigField("driverRoot", HostPath("/run/nvidia/driver"), "/", "Host folder that holds the driver.")
DRIVER_ROOT_MOUNT = ConfigField(
    "driverRootMount",
    HostPath("/driver-root", optional=True),
    "",
    "Where the agent sees driverRoot; empty: at the same path.",
)
DEV_ROOT = ConfigField(
    "devRoot", HostPath("/run/nvidia/driver", optional=True), "", "Host folder that holds dev/; empty: driverRoot."
)
DEV_ROOT_MOUNT = ConfigField(
    "devRootMount",
    HostPath("/driver-root", optional=True),
    "",
    "Where the agent sees devRoot; empty: at the same path, or driverRootMount when devRoot is driverRoot.",
)
LIBRARY = ConfigField(
    "library",
    HostPath("/usr/lib64/libnvidia-ml.so.1", optional=True),
    "",
    "libnvidia-ml.so.1, as the agent sees it; empty: looked for in the usual folders of driverRoot.",
)
MIG_STRATEGY = ConfigField(
    "migStrategy",
    Choice(MigStrategy),
    MigStrategy.NONE,
    "Default rules: none offers whole GPUs, mixed also MIG profiles by name, single MIG devices as nvidia.com/gpu.",
)
NVIDIA = section(
    "nvidia",
    Section(DRIVER_ROOT, DRIVER_ROOT_MOUNT, DEV_ROOT, DEV_ROOT_MOUNT, LIBRARY, MIG_STRATEGY),
    "NVIDIA's driver, and the default rules.",
)


class _ResourceName(Text):
    """Checked as a whole in ``resources``, where the profiles are known that may fill it in."""

    def __init__(self) -> None:
        super().__init__(r"(?s:.+)", "a resource name", "nvidia.com/gpu")

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "string"}


RESOURCE_NAME = ConfigField(
    "name", _ResourceName(), "", "Resource name, such as nvidia.com/gpu; may hold {profile}.", required=True
)
DOOR = ConfigField(
    "door",
    Choice(Doors),
    Doors.PLUGIN,
    "Door through which the devices are offered: plugin (the kubelet's device plugin API), dra (resource claims) or"
    " both (a free device through both; once it is taken through one, it is withdrawn from the other).",
)
IDS = ConfigField(
    "ids",
    Choice(DeviceIds),
    DeviceIds.VENDOR,
    "Device ids: those of the vendor's plugin (vendor), or the device's own name (name).",
)
UNIFORM = ConfigField(
    "uniform",
    Boolean(),
    False,
    "Offer nothing unless all devices are of one kind and profile, and no GPU in MIG mode is without an instance.",
)
RESOURCES = ConfigField(
    "resources",
    ConfigList(Section(RESOURCE_NAME, DOOR, IDS, UNIFORM, DEVICES, *OPTIONS), fewest=1, unique=False),
    (),
    "Which devices are offered under which name; the first that matches has it. Absent: see nvidia.migStrategy.",
)

ROOT = Section(
    API_VERSION_FIELD,
    KIND_FIELD,
    NODE_NAME,
    KUBELET,
    ROOTS,
    STATE,
    SOCKET,
    HTTP,
    INSTANCE_NAME,
    LOG,
    INVENTORY,
    CDI,
    TOPOLOGY,
    KUBERNETES,
    HOLDS,
    HEALTH,
    DRA,
    NVIDIA,
    DEFAULTS,
    RESOURCES,
)


def json_schema() -> JsonObject:
    """JSON Schema (draft 2020-12) of the format, for editors and ``ostler config schema``.

    It accepts everything that ``load`` accepts, and refuses unknown keys and wrong types as ``load`` does; what several
    keys mean together it cannot say.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://ostler.dev/schemas/config-v1alpha1.json",
        "title": "Configuration of ostler",
        **ROOT.schema(),
    }
