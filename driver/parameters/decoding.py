"""Decodes opaque parameters of version ``ostler.dev/v1alpha1`` strictly: every key known, every value of its type.

Parameters are decoded when a claim is prepared and nowhere earlier: the API server accepts any object. So preparation
refuses a mistake, with place, value and fix; a parameter that is silently ignored gives the author a container that
nobody asked for. The texts of errors go into the events of the claim's pods.

An absent field is None: the value of an earlier configuration, or of the node's rule, stays. Settings of the node
(driver root, CDI mode, ids) are not parameters, because whoever writes a claim cannot know them.

JSON allows a key twice in one object, and readers differ in which one counts, so ostler refuses it. The API server
keeps opaque parameters as they were sent, including duplicate keys. A parser of claims passes ``pairs`` to
``json.loads`` as ``object_pairs_hook``; its objects are ordinary dicts (the last duplicate counts) that remember which
keys were duplicated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driver.claims.model import AllocatedConfig, ConfigSource
from driver.parameters.errors import LONGEST, ParameterError, missing_or, shown, shown_key, shown_path
from driver.parameters.interface import InterfaceParameters, own_interface
from driver.parameters.sharing import SharingParameters, own_sharing
from kube.bodies import Json, JsonObject
from node.inventory.model import DeviceKind
from node.values import Value, value

MOST_CHANNELS = 2048
"""IMEX channels are numbered below this (NVIDIA's driver makes 2048 at most)."""
FIELDS = {
    "gdrcopy": "gdrcopy",
    "gds": "gds",
    "mofed": "mofed",
    "imexChannels": "imex_channels",
    "imexRequired": "imex_required",
    "rdma": "rdma",
    "vhostNet": "vhost_net",
    "nccl": "nccl",
    "interface": "interface",
    "sharing": "sharing",
}
"""Every field's name in JSON, and its name in the value."""


def decode(config: AllocatedConfig) -> Config:
    """The parameters as a value. Raises ``ParameterError``."""
    place = config.labelled_place
    parameters = config.parameters
    if not isinstance(parameters, dict):
        raise ParameterError(
            place, "", f"{shown(parameters)} is not an object", f"write an object with apiVersion {API_VERSION}"
        )
    doubled = doubled_keys(parameters)
    if doubled:
        raise ParameterError(place, shown_path(doubled[0]), "the key occurs twice", "write it once")
    kind = _kind(parameters, place)
    names = {json_name: name for json_name, name in FIELDS.items() if name in kind.__slots__}
    found: dict[str, object] = {}
    for key, content in parameters.items():
        if key in ("apiVersion", "kind"):
            continue
        if key not in names:
            raise _unknown(place, key, kind, names)
        if key in CLASS_ONLY and config.source is not ConfigSource.CLASS:
            raise ParameterError(
                place, key, "a claim may not set it", "leave it out; an administrator writes it into a DeviceClass"
            )
        found[names[key]] = _decoded(config, kind, key, content)
    made: Config = kind(**found)  # type: ignore[arg-type]  # each was checked against its field above
    if isinstance(made, GpuConfig) and made.imex_required and made.imex_channels == ():
        raise ParameterError(place, "imexRequired", "true without a channel in imexChannels", "name the channels")
    return made


def _kind(parameters: JsonObject, place: str) -> type[Config]:
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    if version != API_VERSION:
        raise ParameterError(place, "apiVersion", missing_or(version), f"write {API_VERSION}")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ParameterError(place, "kind", missing_or(kind), f"write one of {', '.join(KINDS)}")
    return KINDS[kind]


def _unknown(place: str, key: str, kind: type[Config], names: dict[str, str]) -> ParameterError:
    import difflib  # Here and not above: only a mistake needs it.

    close = difflib.get_close_matches(key[:LONGEST], names, n=1)
    fix = f"did you mean {close[0]}?" if close else f"it has {', '.join(names)}"
    return ParameterError(place, shown_key(key), f"{kind.__name__} has no such field", fix)


def _decoded(config: AllocatedConfig, kind: type[Config], key: str, content: Json) -> object:
    if key == "interface":
        return own_interface(config, content)
    if key == "sharing":
        return own_sharing(config, content, mig=kind is MigConfig)
    place = config.labelled_place
    return _channels(place, key, content) if key == "imexChannels" else _truth(place, key, content)


def _truth(place: str, key: str, content: Json) -> bool:
    if not isinstance(content, bool):
        raise ParameterError(place, key, f"{shown(content)} is neither true nor false", "write true or false")
    return content


def _channels(place: str, key: str, content: Json) -> tuple[int, ...]:
    if not isinstance(content, list):
        raise ParameterError(place, key, f"{shown(content)} is not a list", "write a list of channel numbers, as [0]")
    channels = []
    for index, item in enumerate(content):
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < MOST_CHANNELS:
            fix = f"write whole numbers from 0 to {MOST_CHANNELS - 1}"
            raise ParameterError(place, f"{key}[{index}]", f"{shown(item)} is not a channel number", fix)
        if item in channels:
            raise ParameterError(place, f"{key}[{index}]", f"channel {item} is listed twice", "write it once")
        channels.append(item)
    return tuple(channels)


API_VERSION = "ostler.dev/v1alpha1"


@value
class GpuConfig(Value):
    """Parameters of whole GPUs and AMD's partitions. ``gdrcopy``, ``gds``, ``mofed``: device nodes of NVIDIA's
    features.

    ``imex_channels``: numbers of IMEX channels, ``imex_required``: fail if one is missing. ``sharing``: how the claim's
    containers share its GPUs.
    """

    gdrcopy: bool | None = None
    gds: bool | None = None
    mofed: bool | None = None
    imex_channels: tuple[int, ...] | None = None
    imex_required: bool | None = None
    sharing: SharingParameters | None = None


@value
class MigConfig(Value):
    """Parameters of MIG devices: those of ``GpuConfig`` except IMEX, which MIG devices cannot use."""

    gdrcopy: bool | None = None
    gds: bool | None = None
    mofed: bool | None = None
    sharing: SharingParameters | None = None


def asks_for_features(content: Config) -> bool:
    """Whether parameters ask for one of NVIDIA's features."""
    if isinstance(content, NicConfig):
        return False
    channels = content.imex_channels if isinstance(content, GpuConfig) else ()
    return any((content.gdrcopy, content.gds, content.mofed, channels))


@value
class NicConfig(Value):
    """Parameters of NICs. ``rdma``: the nodes of their RDMA device. ``vhost_net``: /dev/vhost-net and /dev/net/tun.

    ``nccl``: the variables of NCCL. ``interface``: the settings of the network interface in the pod that it moves into.
    """

    rdma: bool | None = None
    vhost_net: bool | None = None
    nccl: bool | None = None
    interface: InterfaceParameters | None = None


Config = GpuConfig | MigConfig | NicConfig

KINDS: dict[str, type[Config]] = {"GpuConfig": GpuConfig, "MigConfig": MigConfig, "NicConfig": NicConfig}
"""Every kind by the name in ``kind``."""
DEVICE_KINDS: dict[type[Config], tuple[DeviceKind, ...]] = {
    GpuConfig: (DeviceKind.GPU, DeviceKind.PARTITION),
    MigConfig: (DeviceKind.MIG,),
    NicConfig: (DeviceKind.NIC, DeviceKind.RDMA),
}
"""The devices that each kind is for."""
CLASS_ONLY = frozenset({"imexChannels", "imexRequired", "mofed"})
"""Fields that only a DeviceClass may have, because they give more than the claim's devices.

A channel opens other nodes' memory, and ``mofed`` every RDMA device of the node, whichever claim has it.
"""


def wrong_kind(config: AllocatedConfig, content: Config, request: str, device: str, kind: str) -> ParameterError:
    """The error that parameters are for a request whose device is of a kind that they are not for."""
    right = next((name for name, made in KINDS.items() if kind in DEVICE_KINDS[made]), "")
    return ParameterError(
        config.place,
        "kind",
        f"{type(content).__name__} is for request {request}, whose device {device} is of kind {kind}",
        f"write {right}, or name other requests" if right else "name other requests",
    )


def of_another_vendor(place: str, device: str, vendor: str) -> ParameterError:
    """The error that parameters ask for NVIDIA's features on a device of another vendor."""
    found = f"gdrcopy, gds, mofed and IMEX are NVIDIA's, {device} is {vendor}'s"
    return ParameterError(place, "", found, "leave its fields out")


_DEEPEST = 8
"""Levels that are searched: ours have two, and deeper ones are refused by the name of their field."""


class _Doubled(dict[str, Json]):
    """An object with duplicate keys."""

    def __init__(self, content: Mapping[str, Json], doubled: Iterable[str]) -> None:
        super().__init__(content)
        self.doubled = tuple(dict.fromkeys(doubled))


def pairs(found: list[tuple[str, Json]]) -> JsonObject:
    """The object with these keys and values: an ``object_pairs_hook``."""
    made = dict(found)
    if len(made) == len(found):
        return made
    seen: set[str] = set()
    doubled = [key for key, _ in found if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
    return _Doubled(made, doubled)


def doubled_keys(parsed: Json, path: str = "", *, levels: int = _DEEPEST) -> tuple[str, ...]:
    """Paths (``a.b``, ``list[0].c``) of the duplicate keys in an object from ``pairs``, down to ``levels`` levels."""
    found: list[str] = []
    if levels == 0:
        return ()
    if isinstance(parsed, _Doubled):
        found += [f"{path}.{key}" if path else key for key in parsed.doubled]
    if isinstance(parsed, dict):
        for key, content in parsed.items():
            found += doubled_keys(content, f"{path}.{key}" if path else key, levels=levels - 1)
    elif isinstance(parsed, list):
        for index, content in enumerate(parsed):
            found += doubled_keys(content, f"{path}[{index}]", levels=levels - 1)
    return tuple(found)
