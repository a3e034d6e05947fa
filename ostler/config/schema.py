"""Our configuration format, described once: fields, kinds, defaults and help.

Reading, the table of flags, ``ostler config schema`` and the reference page all come from this description, so that
they cannot disagree. ``resources`` and ``settings_builder`` check what fields mean together.
"""

from __future__ import annotations

from driver.names import MetadataVersion, Peer, TaintEffect
from node.ledger.processes import DAEMONS
from node.rules import DeviceIds, Doors
from ostler.config.device_fields import DEVICES
from ostler.config.health import HEALTH
from ostler.config.mig import MIG
from ostler.config.option_fields import DEFAULTS, MOVE_INTERFACE, OPTIONS
from ostler.config.scalars import (
    SUBDOMAIN,
    AnyPath,
    Boolean,
    Choice,
    DurationType,
    HostPath,
    JsonObject,
    ListenAddress,
    ResourceName,
    Size,
    Text,
)
from ostler.config.section import ConfigField, ConfigList, Section, section
from ostler.config.settings import (
    INSTANCE,
    EventsChoice,
    LogFormat,
    LogLevel,
    MigStrategy,
    MpsFileSystem,
    OnOff,
    RegistrationChoice,
)
from ostler.config.sharing import PARTITIONS, SHARING
from ostler.config.virtual_functions import VIRTUAL_FUNCTIONS

API_VERSION = "ostler.dev/v1alpha1"
KIND = "Config"


API_VERSION_FIELD = ConfigField(
    "apiVersion", Choice((API_VERSION,)), API_VERSION, "Version of this format.", required=True
)
KIND_FIELD = ConfigField("kind", Choice((KIND,)), KIND, "Kind of this document.", required=True)
NODE_NAME = ConfigField(
    "nodeName",
    Text(
        rf"(?=.{{1,253}}$){SUBDOMAIN}", "a node name of lower-case letters, digits, - and .", "worker-1", optional=True
    ),
    "",
    "Name of the node in Kubernetes; ostler never guesses it. Only features that use the API server need it.",
)

DEVICE_PLUGIN_DIR = ConfigField(
    "devicePluginDir",
    HostPath("/var/lib/kubelet/device-plugins"),
    "/var/lib/kubelet/device-plugins",
    "Folder of the kubelet's registration socket; it does not depend on the kubelet's root.",
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
    "How resources are registered: auto uses the watched folder if the kubelet answers there, else Register.",
)
KUBELET = section(
    "kubelet", Section(DEVICE_PLUGIN_DIR, REGISTRY_DIR, REGISTRATION), "How the agent registers with the kubelet."
)

SYS_ROOT = ConfigField("sys", HostPath("/sys"), "/sys", "Where the agent sees the host's /sys.")
PROC_ROOT = ConfigField("proc", HostPath("/proc"), "/proc", "Where the agent sees the host's /proc.")
ROOTS = section("roots", Section(SYS_ROOT, PROC_ROOT), "Roots of the kernel's file systems.")

STATE_DIRECTORY = ConfigField(
    "directory", HostPath("/var/lib/ostler"), "/var/lib/ostler", "Folder for the agent's state and its lock."
)
STATE = section("state", Section(STATE_DIRECTORY), "State that survives a restart.")
SOCKET = ConfigField(
    "socket",
    HostPath("/run/ostler/ostler.sock", socket=True),
    "/run/ostler/ostler.sock",
    "Socket on which the running agent serves the command line.",
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
    "Name of this agent if two run side by side during an update; its probes are then /livez/NAME and /readyz/NAME.",
)
HTTP = section("http", Section(ADDRESS), "Probes and metrics.")

LOG_LEVEL = ConfigField("level", Choice(LogLevel), LogLevel.INFO, "Lowest level that is logged.")
LOG_FORMAT = ConfigField("format", Choice(LogFormat), LogFormat.TEXT, "Lines for people, or JSON.")
LOG = section("log", Section(LOG_LEVEL, LOG_FORMAT), "Logging.")

MAX_INTERVAL = ConfigField(
    "maxInterval", DurationType("500ms", "60s"), 60.0, "Longest time between two scans; events cause earlier scans."
)
RECORDED = ConfigField("recorded", AnyPath(), None, "Recorded node to use instead of this node's hardware.")
INVENTORY = section("inventory", Section(MAX_INTERVAL, RECORDED), "How devices are found.")

CDI_DIRECTORY = ConfigField(
    "directory", HostPath("/var/run/cdi"), "/var/run/cdi", "Folder into which ostler writes CDI specs."
)
CDI_SPEC_DIRECTORIES = ConfigField(
    "specDirectories",
    ConfigList(HostPath("/etc/cdi"), fewest=1),
    ("/etc/cdi", "/var/run/cdi"),
    "Folders with other programs' CDI specs (for cdiMode delegate).",
)
CDI = section("cdi", Section(CDI_DIRECTORY, CDI_SPEC_DIRECTORIES), "Container Device Interface.")

EVENTS = ConfigField(
    "events",
    Choice(EventsChoice),
    EventsChoice.AUTO,
    "Events on the Node: auto posts them if nodeName is set and the pod has an account or a kubeconfig is given.",
)
KUBECONFIG = ConfigField(
    "kubeconfig",
    HostPath("/etc/kubernetes/kubelet.conf", optional=True),
    "",
    "Kubeconfig for the API server; empty: the pod's service account.",
)
DOOR_BY_NODE = ConfigField(
    "doorByNode",
    Choice(OnOff),
    OnOff.OFF,
    "on: the label ostler.dev/door and the annotation ostler.dev/doors of this Node override the door of a rule.",
)
PATCH_ALLOCATABLE = ConfigField(
    "patchAllocatable",
    Choice(OnOff),
    OnOff.OFF,
    "on: the agent writes the number of its healthy devices into status.allocatable of this Node at once, so that the"
    " scheduler does not wait for the kubelet's report.",
)
RECORDED_DEVICES = ConfigField(
    "recordedDevices",
    Choice(OnOff),
    OnOff.OFF,
    "on: the plugin door prefers the devices that a scheduler has recorded in the annotations of this"
    " Node's pods, and the agent notes on each such pod which devices the kubelet gave it.",
)
KUBERNETES = section(
    "kubernetes",
    Section(EVENTS, KUBECONFIG, DOOR_BY_NODE, PATCH_ALLOCATABLE, RECORDED_DEVICES),
    "The Kubernetes API server.",
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
    "Programs that do not count as users of a device, such as daemons of its driver; * stands for any characters. If"
    " another program still uses a device after its pod or claim has ended, nobody else gets the device.",
)
HOLDS = section("holds", Section(IGNORE_PROCESSES), "Who has which device.")

DRIVER_NAME = ConfigField(
    "driverName",
    Text(
        rf"(?=.{{1,63}}$){SUBDOMAIN}", "a domain name of at most 63 lower-case letters, digits, - and .", "ostler.dev"
    ),
    "ostler.dev",
    "Name of the DRA driver in its slices, and the domain of their attributes; it must be the same on all nodes.",
)
PLUGINS_DIR = ConfigField(
    "pluginsDirectory",
    HostPath("/var/lib/kubelet/plugins", optional=True),
    "",
    "Folder in which the kubelet's plugins keep data and sockets; empty: plugins, next to pluginsRegistryDir.",
)
NRI_SOCKET = ConfigField(
    "nriSocket",
    HostPath("/var/run/nri/nri.sock"),
    "/var/run/nri/nri.sock",
    "Socket at which the container runtime serves NRI, for resources with moveInterface.",
)
ALSO_PUBLISH_AS = ConfigField(
    "alsoPublishAs",
    ConfigList(Choice(Peer)),
    (),
    "Other DRA drivers in whose domains the attributes are also published, so that claims for them need no change;"
    " k8s.cni.cncf.io for Multus.",
)
TAINT_EFFECT = ConfigField(
    "taintEffect",
    Choice(TaintEffect),
    TaintEffect.NO_SCHEDULE,
    "Effect of the taint of an unhealthy device, unless health.effects sets one: NoSchedule keeps new claims away (a"
    " device that left the bus evicts anyway), NoExecute also evicts the pods that have it. A device whose state is"
    " unknown never evicts.",
)
DEVICE_METADATA = ConfigField(
    "deviceMetadata",
    ConfigList(Choice(MetadataVersion)),
    (),
    "API versions of the files that describe a claim's devices in its containers (metadata.resource.k8s.io, KEP-5304);"
    " none: there are no such files. Claims that are already prepared keep what they have.",
)
REQUIRE_DEVICE_METADATA = ConfigField(
    "requireDeviceMetadata",
    Boolean(),
    False,
    "Prepare no claim whose metadata files cannot be written. Otherwise its containers start without them, and an event"
    " says why.",
)
DRA = section(
    "dra",
    Section(
        DRIVER_NAME, PLUGINS_DIR, NRI_SOCKET, ALSO_PUBLISH_AS, TAINT_EFFECT, DEVICE_METADATA, REQUIRE_DEVICE_METADATA
    ),
    "Dynamic Resource Allocation, for the doors dra and both.",
)

TOPOLOGY_FILE = ConfigField(
    "file",
    HostPath("/etc/ostler/topology.yaml", optional=True),
    "",
    "File with the locations of devices, for machines whose PCIe tree does not show them; empty for none.",
)
TOPOLOGY = section("topology", Section(TOPOLOGY_FILE), "Locations of devices.")

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
    "Path of libnvidia-ml.so.1, as the agent sees it; empty: the agent searches the usual folders of driverRoot.",
)
MIG_STRATEGY = ConfigField(
    "migStrategy",
    Choice(MigStrategy),
    MigStrategy.NONE,
    "Default rules: none offers whole GPUs, mixed also MIG profiles by name, single MIG devices as nvidia.com/gpu.",
)
MPS_ROOT = ConfigField(
    "mpsRoot",
    HostPath("/run/nvidia/mps"),
    "/run/nvidia/mps",
    "Host folder for the pipes, logs and shared memory of MPS.",
)
MPS_FILE_SYSTEM = ConfigField(
    "mpsFileSystem",
    Choice(MpsFileSystem),
    MpsFileSystem.PER_DAEMON,
    "Where MPS daemons and their pods store what they share. perDaemon: the agent mounts a file system in memory for"
    " each daemon. provided: mpsRoot is a file system of its own, with limits, that you have mounted.",
)
MPS_FILE_SYSTEM_SIZE: ConfigField[int | None] = ConfigField(
    "mpsFileSystemSize",
    Size(),
    None,
    "Size of each MPS daemon's file system with perDaemon, in which the daemon's pods also have their /dev/shm; absent:"
    " 256Mi.",
)
MIG_CONFIG_FILE = ConfigField(
    "migConfigFile",
    HostPath("/etc/nvidia-mig-manager/config.yaml", optional=True),
    "",
    "File with MIG layouts in the format of NVIDIA's mig-parted; empty for none.",
)
MIG_CONFIG = ConfigField(
    "migConfig",
    Text(r"[^\x00-\x1f\x7f]{1,128}", "a name of at most 128 characters", "all-balanced", optional=True),
    "",
    "The configuration of migConfigFile that this node's GPUs are divided by, while nothing uses them. The layout of a"
    " resource that selects a GPU overrides it.",
)
NVIDIA = section(
    "nvidia",
    Section(
        DRIVER_ROOT,
        DRIVER_ROOT_MOUNT,
        DEV_ROOT,
        DEV_ROOT_MOUNT,
        LIBRARY,
        MIG_STRATEGY,
        MPS_ROOT,
        MPS_FILE_SYSTEM,
        MPS_FILE_SYSTEM_SIZE,
        MIG_CONFIG_FILE,
        MIG_CONFIG,
    ),
    "NVIDIA's driver, and the default rules.",
)


RESOURCE_NAME = ConfigField(
    "name", ResourceName(), "", "Resource name, such as nvidia.com/gpu; may contain {profile}.", required=True
)
DOOR = ConfigField(
    "door",
    Choice(Doors),
    Doors.PLUGIN,
    "Door through which the devices are offered: plugin (the kubelet's device plugin API), dra (resource claims) or"
    " both (a free device through both; once it is held through one, it is withdrawn from the other).",
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
    "Offer nothing unless all devices have one kind and profile, and every GPU in MIG mode has an instance.",
)
RESOURCES = ConfigField(
    "resources",
    ConfigList(
        Section(RESOURCE_NAME, DOOR, IDS, UNIFORM, DEVICES, SHARING, PARTITIONS, MIG, MOVE_INTERFACE, *OPTIONS),
        fewest=1,
        unique=False,
    ),
    (),
    "Rules that say which devices are offered under which name; the first matching rule counts. Absent: see"
    " nvidia.migStrategy.",
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
    VIRTUAL_FUNCTIONS,
    RESOURCES,
)


def json_schema() -> JsonObject:
    """JSON Schema (draft 2020-12) of the format, for editors and ``ostler config schema``.

    It accepts everything that ``load`` accepts, and rejects unknown keys and wrong types like ``load``. It cannot check
    what several keys mean together.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://ostler.dev/schemas/config-v1alpha1.json",
        "title": "Configuration of ostler",
        **ROOT.schema(),
    }
