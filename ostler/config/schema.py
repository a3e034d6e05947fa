"""Our configuration format, described once: fields, kinds, defaults and help.

Reading, the table of flags, ``ostler config schema`` and the reference page all come from this description, so that
they cannot disagree. What fields mean together is judged in ``resources`` and ``building``.
"""

from __future__ import annotations

from enum import StrEnum

from driver.devices.peer import Peer
from node.edits.options import CdiMode, IdStrategy, ListStrategy
from node.inventory.model import DeviceKind
from node.rules import DeviceIds, Door
from ostler.config.nic_values import DriverName, Functions, PartitionKey, PciId, RootFunctions
from ostler.config.patterns import NamePattern, Pattern, PciPattern, ProfilePattern, UuidPattern
from ostler.config.scalars import Address, AnyPath, Boolean, Choice, Duration, HostPath, Integer, JsonObject, Text
from ostler.config.section import Field, ListOf, Section, section
from ostler.config.settings import INSTANCE, EventsChoice, LogFormat, LogLevel, MigStrategy, RegistrationChoice

API_VERSION = "ostler.dev/v1alpha1"
KIND = "Config"

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


class _ApiVersion(StrEnum):
    V1ALPHA1 = API_VERSION


class _Kind(StrEnum):
    CONFIG = KIND


class Vendor(StrEnum):
    """Vendors whose devices are found and served; a NIC of any other one is selected by ``pciVendors``."""

    NVIDIA = "nvidia"
    AMD = "amd"
    INTEL = "intel"
    MELLANOX = "mellanox"
    BROADCOM = "broadcom"
    AMAZON = "amazon"
    GOOGLE = "google"
    REDHAT = "redhat"
    CHELSIO = "chelsio"
    MARVELL = "marvell"
    CISCO = "cisco"
    HUAWEI = "huawei"


class NicFunction(StrEnum):
    """What a NIC is to SR-IOV."""

    PF = "pf"
    VF = "vf"
    SF = "sf"


class NamedInUse(StrEnum):
    """What becomes of a NIC that is named while the node itself uses it, or while virtual functions stand for it."""

    OFFER = "offer"
    WITHHOLD = "withhold"


class LinkType(StrEnum):
    """What a NIC's link speaks."""

    ETHERNET = "ethernet"
    INFINIBAND = "infiniband"


API_VERSION_FIELD = Field(
    "apiVersion", Choice(_ApiVersion), _ApiVersion.V1ALPHA1, "Version of this format.", required=True
)
KIND_FIELD = Field("kind", Choice(_Kind), _Kind.CONFIG, "Kind of this document.", required=True)
NODE_NAME = Field(
    "nodeName",
    Text(
        rf"(?=.{{1,253}}$){_SUBDOMAIN}", "a node name of lower-case letters, digits, - and .", "worker-1", optional=True
    ),
    "",
    "Name of the node in Kubernetes; never guessed. Needed only by parts that talk to the API server.",
)

DEVICE_PLUGIN_DIR = Field(
    "devicePluginDir",
    HostPath("/var/lib/kubelet/device-plugins"),
    "/var/lib/kubelet/device-plugins",
    "Folder of the kubelet's registration socket; the same whatever the kubelet's root is.",
)
REGISTRY_DIR = Field(
    "pluginsRegistryDir",
    HostPath("/var/lib/kubelet/plugins_registry"),
    "/var/lib/kubelet/plugins_registry",
    "Folder that the kubelet watches for plugins; follows the kubelet's root.",
)
REGISTRATION = Field(
    "registration",
    Choice(RegistrationChoice),
    RegistrationChoice.AUTO,
    "How resources are registered: auto uses the watched folder where the kubelet answers there, else Register.",
)
KUBELET = section(
    "kubelet", Section(DEVICE_PLUGIN_DIR, REGISTRY_DIR, REGISTRATION), "Where and how the kubelet is met."
)

SYS_ROOT = Field("sys", HostPath("/sys"), "/sys", "Where the agent sees the host's /sys.")
PROC_ROOT = Field("proc", HostPath("/proc"), "/proc", "Where the agent sees the host's /proc.")
ROOTS = section("roots", Section(SYS_ROOT, PROC_ROOT), "Roots of the kernel's file systems.")

STATE_DIRECTORY = Field(
    "directory", HostPath("/var/lib/ostler"), "/var/lib/ostler", "Folder of what is remembered, and of the lock."
)
STATE = section("state", Section(STATE_DIRECTORY), "What survives a restart.")
SOCKET = Field(
    "socket",
    HostPath("/run/ostler/ostler.sock", socket=True),
    "/run/ostler/ostler.sock",
    "Socket on which the running agent answers the command line.",
)
ADDRESS = Field(
    "address",
    Address(),
    "0.0.0.0:9410",
    "Address of /livez, /readyz and /metrics; off or empty for none.",
)
INSTANCE_NAME = Field(
    "instance",
    Text(INSTANCE, "a name of at most 63 lower-case letters, digits and -", "v1-2-0-5f3a", optional=True),
    "",
    "Name of this agent where two run side by side during an update; probes then are /livez/NAME and /readyz/NAME.",
)
HTTP = section("http", Section(ADDRESS), "Probes and metrics.")

LOG_LEVEL = Field("level", Choice(LogLevel), LogLevel.INFO, "Least important level that is logged.")
LOG_FORMAT = Field("format", Choice(LogFormat), LogFormat.TEXT, "Lines for people, or JSON.")
LOG = section("log", Section(LOG_LEVEL, LOG_FORMAT), "Logging.")

MAX_INTERVAL = Field(
    "maxInterval", Duration("500ms", "60s"), 60.0, "Most time between two scans; events cause scans sooner."
)
RECORDED = Field("recorded", AnyPath(), None, "Recorded node to replay in place of this node's hardware.")
INVENTORY = section("inventory", Section(MAX_INTERVAL, RECORDED), "How devices are found.")

CDI_DIRECTORY = Field("directory", HostPath("/var/run/cdi"), "/var/run/cdi", "Folder in which CDI specs are written.")
CDI_SPEC_DIRECTORIES = Field(
    "specDirectories",
    ListOf(HostPath("/etc/cdi"), fewest=1),
    ("/etc/cdi", "/var/run/cdi"),
    "Folders in which CDI specs of others are looked for (cdiMode delegate).",
)
CDI = section("cdi", Section(CDI_DIRECTORY, CDI_SPEC_DIRECTORIES), "Container Device Interface.")

EVENTS = Field(
    "events",
    Choice(EventsChoice),
    EventsChoice.AUTO,
    "Events on the Node: auto posts them in a pod with an account or by a kubeconfig, where nodeName is given.",
)
KUBECONFIG = Field(
    "kubeconfig",
    HostPath("/etc/kubernetes/kubelet.conf", optional=True),
    "",
    "Kubeconfig to reach the API server with; empty: the pod's service account.",
)
KUBERNETES = section("kubernetes", Section(EVENTS, KUBECONFIG), "The Kubernetes API server.")

DRIVER_NAME = Field(
    "driverName",
    Text(
        rf"(?=.{{1,63}}$){_SUBDOMAIN}", "a domain name of at most 63 lower-case letters, digits, - and .", "ostler.dev"
    ),
    "ostler.dev",
    "Name of the DRA driver: in its slices, and the domain of their attributes; other nodes must have the same.",
)
PLUGINS_DIR = Field(
    "pluginsDirectory",
    HostPath("/var/lib/kubelet/plugins", optional=True),
    "",
    "Folder in which the kubelet's plugins keep data and sockets; empty: plugins, beside pluginsRegistryDir.",
)
ALSO_PUBLISH_AS = Field(
    "alsoPublishAs",
    ListOf(Choice(Peer)),
    (),
    "Other DRA drivers in whose domain the attributes are published as well, so that claims for them run unchanged.",
)
DRA = section("dra", Section(DRIVER_NAME, PLUGINS_DIR, ALSO_PUBLISH_AS), "Dynamic Resource Allocation, for door dra.")

TOPOLOGY_FILE = Field(
    "file",
    HostPath("/etc/ostler/topology.yaml", optional=True),
    "",
    "File that says where devices are, for machines whose PCIe tree does not tell; empty for none.",
)
TOPOLOGY = section("topology", Section(TOPOLOGY_FILE), "Where devices are.")

DRIVER_ROOT = Field("driverRoot", HostPath("/run/nvidia/driver"), "/", "Host folder that holds the driver.")
DRIVER_ROOT_MOUNT = Field(
    "driverRootMount",
    HostPath("/driver-root", optional=True),
    "",
    "Where the agent sees driverRoot; empty: at the same path.",
)
DEV_ROOT = Field(
    "devRoot", HostPath("/run/nvidia/driver", optional=True), "", "Host folder that holds dev/; empty: driverRoot."
)
DEV_ROOT_MOUNT = Field(
    "devRootMount",
    HostPath("/driver-root", optional=True),
    "",
    "Where the agent sees devRoot; empty: at the same path, or driverRootMount when devRoot is driverRoot.",
)
LIBRARY = Field(
    "library",
    HostPath("/usr/lib64/libnvidia-ml.so.1", optional=True),
    "",
    "libnvidia-ml.so.1, as the agent sees it; empty: looked for in the usual folders of driverRoot.",
)
MIG_STRATEGY = Field(
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

STRATEGIES = Field(
    "deviceListStrategy",
    ListOf(Choice(ListStrategy), fewest=1),
    (ListStrategy.ENVVAR,),
    "How a container is told its devices; several add up.",
)
ID_STRATEGY = Field("deviceIDStrategy", Choice(IdStrategy), IdStrategy.UUID, "What names a device in the container.")
DEVICE_SPECS = Field(
    "passDeviceSpecs", Boolean(), True, "Give device nodes in the answer itself (not where every strategy is CDI)."
)
CDI_MODE = Field(
    "cdiMode",
    Choice(CdiMode),
    CdiMode.NODES,
    "CDI spec: nodes (ours, device nodes only), full (ours, with driver files and hooks), delegate (nvidia-ctk's).",
)
HOOK = Field(
    "hook", HostPath("/usr/bin/nvidia-cdi-hook", optional=True), "", "Host path of nvidia-cdi-hook, for cdiMode full."
)
ANNOTATION_PREFIX = Field(
    "cdiAnnotationPrefix",
    Text(rf"(?=.{{1,253}}/){_SUBDOMAIN}/", "a domain with / behind it", "cdi.k8s.io/"),
    "cdi.k8s.io/",
    "Start of the annotation's name, for the strategy cdi-annotations.",
)
GDRCOPY = Field("gdrcopy", Boolean(), False, "Give /dev/gdrdrv (GDRCopy).")
GDS = Field("gds", Boolean(), False, "Give what GPUDirect Storage needs.")
MOFED = Field("mofed", Boolean(), False, "Give /dev/infiniband (MOFED).")
CHANNELS = Field("channelIDs", ListOf(Integer(0, 2047), most=2048), (), "IMEX channels to give.")
CHANNELS_REQUIRED = Field("required", Boolean(), False, "Refuse to give devices while a channel is missing.")
IMEX = section("imex", Section(CHANNELS, CHANNELS_REQUIRED), "IMEX channels.")
HINTS = Field("topologyHints", Boolean(), True, "Tell the kubelet the NUMA node of each device.")
LINK_HEALTH = Field("linkHealth", Boolean(), False, "Show a NIC unhealthy while its link is down.")
RDMA_DEVICES: Field[bool | None] = Field(
    "rdmaDevices",
    Boolean(),
    None,
    "Give the RDMA device nodes of a NIC; absent: where devices say rdma: true or kind: rdma alone.",
)
VHOST_NET = Field("vhostNet", Boolean(), False, "Give /dev/vhost-net and /dev/net/tun with a NIC.")
NAMED_IN_USE = Field(
    "namedInUse",
    Choice(NamedInUse),
    NamedInUse.OFFER,
    "A NIC that the node itself uses, or whose virtual functions stand for it, where devices name it (interface, PCI "
    "address, device name): offer it all the same, or withhold it like any other.",
)
OPTIONS = (
    STRATEGIES,
    ID_STRATEGY,
    DEVICE_SPECS,
    CDI_MODE,
    HOOK,
    ANNOTATION_PREFIX,
    GDRCOPY,
    GDS,
    MOFED,
    IMEX,
    HINTS,
    LINK_HEALTH,
    RDMA_DEVICES,
    VHOST_NET,
    NAMED_IN_USE,
)
DEFAULTS = section("defaults", Section(*OPTIONS), "Options of every resource; a resource may override each.")

KINDS = Field("kind", ListOf(Choice(DeviceKind), fewest=1, single=True), (), "Kinds of device.")
VENDORS = Field("vendor", ListOf(Choice(Vendor), fewest=1, single=True), (), "Vendors.")
PRODUCTS = Field(
    "product",
    ListOf(Pattern(), fewest=1, single=True),
    (),
    "Product names, also without the vendor and with - for blanks.",
)
PROFILES = Field(
    "profile", ListOf(ProfilePattern(), fewest=1, single=True), (), "MIG profiles, or AMD's partition modes."
)
UUIDS = Field("uuid", ListOf(UuidPattern(), fewest=1, single=True), (), "UUIDs.")
PCI_ADDRESSES = Field("pciAddress", ListOf(PciPattern(), fewest=1, single=True), (), "PCI addresses.")
NAMES = Field("name", ListOf(NamePattern(), fewest=1, single=True), (), "Device names, as 'ostler devices' shows them.")
MIG_ENABLED: Field[bool | None] = Field(
    "migEnabled", Boolean(), None, "Whole GPUs with MIG mode on (true) or off (false)."
)
WHOLE_INSTANCES = Field(
    "wholeInstances", Boolean(), False, "Only MIG devices whose compute instance fills its GPU instance."
)
DRIVERS = Field("drivers", ListOf(DriverName(), fewest=1, single=True), (), "Kernel drivers.")
PCI_VENDORS = Field("pciVendors", ListOf(PciId("15b3"), fewest=1, single=True), (), "PCI vendor ids of NICs.")
PCI_DEVICES = Field("pciDevices", ListOf(PciId("101e"), fewest=1, single=True), (), "PCI device ids of NICs.")
FUNCTIONS = Field(
    "functions",
    ListOf(Choice(NicFunction), fewest=1, single=True),
    (),
    "NICs that are physical functions or without SR-IOV (pf), virtual functions (vf), subfunctions (sf).",
)
INTERFACES = Field(
    "interfaces",
    ListOf(Functions(), fewest=1, single=True),
    (),
    "NICs by the interface of their physical function; NAME#0-3,7 for virtual functions by number.",
)
ROOT_DEVICES = Field(
    "rootDevices",
    ListOf(RootFunctions(), fewest=1, single=True),
    (),
    "NICs by the PCI address of their physical function; ADDRESS#0-3,7 for virtual functions by number.",
)
LINK_TYPES = Field("linkTypes", ListOf(Choice(LinkType), fewest=1, single=True), (), "What the link of a NIC speaks.")
RDMA: Field[bool | None] = Field("rdma", Boolean(), None, "NICs with an RDMA device (true) or without one (false).")
ACPI_INDEXES = Field(
    "acpiIndexes",
    ListOf(Integer(0, 0xFFFFFFFF), fewest=1, single=True),
    (),
    "NICs by the index that the firmware gives them.",
)
PARTITION_KEYS = Field(
    "pKeys", ListOf(PartitionKey(), fewest=1, single=True), (), "NICs by their default InfiniBand partition key."
)
NIC_FACTS = (
    PCI_VENDORS,
    PCI_DEVICES,
    FUNCTIONS,
    INTERFACES,
    ROOT_DEVICES,
    LINK_TYPES,
    RDMA,
    ACPI_INDEXES,
    PARTITION_KEYS,
)
"""Facts that only NICs have: a selection with one of them is of NICs alone."""

DEVICES = section(
    "devices",
    Section(
        KINDS,
        VENDORS,
        PRODUCTS,
        PROFILES,
        UUIDS,
        PCI_ADDRESSES,
        NAMES,
        MIG_ENABLED,
        WHOLE_INSTANCES,
        DRIVERS,
        *NIC_FACTS,
    ),
    "Which devices: every key given must match, of several values one; no key: all but NICs that no earlier one has.",
)


class _ResourceName(Text):
    """Checked as a whole in ``resources``, where the profiles are known that may fill it in."""

    def __init__(self) -> None:
        super().__init__(r"(?s:.+)", "a resource name", "nvidia.com/gpu")

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "string"}


RESOURCE_NAME = Field(
    "name", _ResourceName(), "", "Resource name, such as nvidia.com/gpu; may hold {profile}.", required=True
)
DOOR = Field(
    "door",
    Choice(Door, later={"both": "is both, which is not served yet"}),
    Door.PLUGIN,
    "Door through which the devices are offered: plugin (the kubelet's device plugin API) or dra (resource claims).",
)
IDS = Field(
    "ids",
    Choice(DeviceIds),
    DeviceIds.VENDOR,
    "Device ids: those of the vendor's plugin (vendor), or the device's own name (name).",
)
UNIFORM = Field(
    "uniform",
    Boolean(),
    False,
    "Offer nothing unless all devices are of one kind and profile, and no GPU in MIG mode is without an instance.",
)
RESOURCES = Field(
    "resources",
    ListOf(Section(RESOURCE_NAME, DOOR, IDS, UNIFORM, DEVICES, *OPTIONS), fewest=1, unique=False),
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
