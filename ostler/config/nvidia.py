"""The configuration of NVIDIA's device plugin (``version: v1``, or none), read into the values of our own format.

For nodes that change over: the same file gives the same resources. Every key is either taken, without meaning here
(with the reason), or refused because what is offered would differ: sharing is not served yet, and Tegra is not found.
Keys that NVIDIA's plugin would overlook in silence (a misspelt one) are errors here.

Where NVIDIA's plugin has another default than ours, the file's silence means ours, with one exception: the CDI
strategies there always write full specs with hooks, so they do here (``cdiMode: full``).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import cast

from node.edits.options import CdiMode, IdStrategy, ListStrategy
from node.inventory.model import DeviceKind
from node.values import Value, value
from ostler.config import document, option_fields, schema
from ostler.config.default_rules import Rename
from ostler.config.document import Mapping, Meaning, Node, ScalarNode
from ostler.config.errors import ConfigError, Note, NoteKind, Origin
from ostler.config.foreign import Anything, GoSection, entry_of, notes_of
from ostler.config.patterns import Pattern, ProfilePattern
from ostler.config.scalars import BadValue, Boolean, Choice, HostPath, Integer, JsonObject, Text
from ostler.config.section import AnyField, ConfigField, ConfigList, Section, Values, section
from ostler.config.settings import MigStrategy

DEFAULT_HOOK = "/usr/bin/nvidia-ctk"
"""What NVIDIA's plugin puts into its CDI specs when ``nvidiaCTKPath`` is not given."""

_DOMAIN = "nvidia.com/"


class _VersionWord(Choice[str]):
    """The version; nothing is v1."""

    def from_text(self, text: str) -> str:
        """See ``ValueType``."""
        return super().from_text(text or "v1")


class _Discovery(StrEnum):
    AUTO = "auto"
    NVML = "nvml"


class NoSharing:
    """The list of shared resources: it must be empty as long as sharing is not served."""

    def read(self, node: Node, at: Origin, problems: list[ConfigError]) -> bool:
        """See ``ValueType``."""
        del at, problems  # the list is refused as a whole
        empty = isinstance(node, document.Sequence) and not node.items
        if not empty and not (isinstance(node, ScalarNode) and node.meaning is Meaning.NULL):
            raise BadValue("asks for sharing, which is not served yet", "remove it, or keep NVIDIA's plugin here")
        return True

    def from_text(self, text: str) -> bool:
        """See ``ValueType``."""
        return not text

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": ["array", "null"], "maxItems": 0}

    example = "[]"
    accepts = "an empty list"


def _keys(*fields: AnyField) -> GoSection:
    """A section as NVIDIA's plugin reads it: by a library that turns YAML into JSON, and so sorts the keys."""
    return GoSection(*fields, by_sorted_keys=True)


def _ignored(key: str, reason: str) -> ConfigField[bool]:
    return ConfigField(key, Anything(), False, reason)


_NO_LABELS = "node labels are not made here"
_VERSION = ConfigField("version", _VersionWord(("v1",)), "v1", "Version of the format.")
_MIG = ConfigField("migStrategy", Choice(MigStrategy), MigStrategy.NONE, "MIG strategy.")
_DRIVER_ROOT = ConfigField("nvidiaDriverRoot", HostPath("/run/nvidia/driver"), "/", "Host folder of the driver.")
_DEV_ROOT = ConfigField("nvidiaDevRoot", HostPath("/run/nvidia/driver", optional=True), "", "Host folder of dev/.")
_GDRCOPY = ConfigField("gdrcopyEnabled", Boolean(), False, "GDRCopy.")
_GDS = ConfigField("gdsEnabled", Boolean(), False, "GPUDirect Storage.")
_MOFED = ConfigField("mofedEnabled", Boolean(), False, "MOFED.")
_DISCOVERY = ConfigField(
    "deviceDiscoveryStrategy",
    Choice(_Discovery, later={"tegra": "is tegra, whose devices are not found here"}),
    _Discovery.AUTO,
    "devices are always found by NVML",
)
_SPECS = ConfigField("passDeviceSpecs", Boolean(), True, "Device nodes in the answer.")
_STRATEGIES: ConfigField[tuple[ListStrategy, ...]] = ConfigField(
    "deviceListStrategy", ConfigList(Choice(ListStrategy), fewest=1, single=True), (), "Device list strategies."
)
_IDS = ConfigField("deviceIDStrategy", Choice(IdStrategy), IdStrategy.UUID, "Device id strategy.")
_PREFIX = ConfigField("cdiAnnotationPrefix", option_fields.ANNOTATION_PREFIX.type, "cdi.k8s.io/", "Annotation prefix.")
_HOOK = ConfigField("nvidiaCTKPath", HostPath(DEFAULT_HOOK, optional=True), "", "Hook program on the host.")
_CONTAINER_ROOT = ConfigField(
    "containerDriverRoot", HostPath("/driver-root", optional=True), "", "Where the plugin sees the driver."
)
_PLUGIN = section(
    "plugin",
    _keys(
        _SPECS,
        _STRATEGIES,
        _IDS,
        _PREFIX,
        _HOOK,
        _CONTAINER_ROOT,
        _ignored("sharedDevicesAllocationPolicy", "sharing is not served yet"),
    ),
    "Flags of the plugin.",
)
_FLAGS = section(
    "flags",
    _keys(
        _MIG,
        _ignored("failOnInitError", "an absent driver is waited for, and shown as such"),
        _ignored("mpsRoot", "MPS is not served yet"),
        _DRIVER_ROOT,
        _DEV_ROOT,
        _GDRCOPY,
        _GDS,
        _MOFED,
        _ignored("useNodeFeatureAPI", _NO_LABELS),
        _DISCOVERY,
        _PLUGIN,
        _ignored("gfd", _NO_LABELS),
    ),
    "Flags.",
)
_NAME = ConfigField("name", Text(r"(?s:.+)", "a resource name", "nvidia.com/gpu"), "", "Resource name.", required=True)
_GPU_PATTERN = ConfigField("pattern", Pattern(), "*", "Product names.", required=True)
_MIG_PATTERN = ConfigField("pattern", ProfilePattern(), "*", "MIG profiles.", required=True)
_GPUS: ConfigField[tuple[Values, ...]] = ConfigField(
    "gpus", ConfigList(_keys(_GPU_PATTERN, _NAME), unique=False), (), "Names of GPUs."
)
_MIGS: ConfigField[tuple[Values, ...]] = ConfigField(
    "mig", ConfigList(_keys(_MIG_PATTERN, _NAME), unique=False), (), "Names of profiles."
)
_RESOURCES = section("resources", _keys(_GPUS, _MIGS), "Names of resources.")
# What the plugin reads by its own code, in which case matters.
_SHARED = Section(
    _ignored("renameByDefault", "nothing is shared"),
    _ignored("failRequestsGreaterThanOne", "nothing is shared"),
    ConfigField("resources", NoSharing(), False, "nothing is shared"),
)
_TIME_SLICING = section("timeSlicing", _SHARED, "Time slicing.")
_MPS = section("mps", _SHARED, "MPS.")
_SHARING = section("sharing", _keys(_TIME_SLICING, _MPS), "Sharing.")
_CHANNELS = ConfigField("channelIDs", ConfigList(Integer(0, 0)), (), "IMEX channels: none, or 0.")
_REQUIRED = ConfigField("required", Boolean(), False, "Whether channels must be there.")
_IMEX = section("imex", _keys(_CHANNELS, _REQUIRED), "IMEX channels.")
ROOT = _keys(_VERSION, _FLAGS, _RESOURCES, _SHARING, _IMEX)


@value
class _Taken(Value):
    """A field there, the field here that gets its value, and the path of that one."""

    there: AnyField
    sections: tuple[ConfigField[Values], ...]
    here: AnyField

    @property
    def key(self) -> str:
        return ".".join(field.key for field in (*self.sections, self.here))


_TAKEN_FLAGS = (
    _Taken(_MIG, (schema.NVIDIA,), schema.MIG_STRATEGY),
    _Taken(_DRIVER_ROOT, (schema.NVIDIA,), schema.DRIVER_ROOT),
    _Taken(_DEV_ROOT, (schema.NVIDIA,), schema.DEV_ROOT),
    _Taken(_GDRCOPY, (option_fields.DEFAULTS,), option_fields.GDRCOPY),
    _Taken(_GDS, (option_fields.DEFAULTS,), option_fields.GDS),
    _Taken(_MOFED, (option_fields.DEFAULTS,), option_fields.MOFED),
)
_TAKEN_PLUGIN = (
    _Taken(_SPECS, (option_fields.DEFAULTS,), option_fields.DEVICE_SPECS),
    _Taken(_STRATEGIES, (option_fields.DEFAULTS,), option_fields.STRATEGIES),
    _Taken(_IDS, (option_fields.DEFAULTS,), option_fields.ID_STRATEGY),
    _Taken(_PREFIX, (option_fields.DEFAULTS,), option_fields.ANNOTATION_PREFIX),
    _Taken(_HOOK, (option_fields.DEFAULTS,), option_fields.HOOK),
    _Taken(_CONTAINER_ROOT, (schema.NVIDIA,), schema.DRIVER_ROOT_MOUNT),
)
_TAKEN_IMEX = (
    _Taken(_CHANNELS, (option_fields.DEFAULTS, option_fields.IMEX), option_fields.CHANNELS),
    _Taken(_REQUIRED, (option_fields.DEFAULTS, option_fields.IMEX), option_fields.CHANNELS_REQUIRED),
)


def is_nvidias(tree: Mapping) -> bool:
    """Whether the keys are those of NVIDIA's format; ``resources`` is a list in ours and a mapping there."""
    resources = entry_of(tree, _RESOURCES.key)
    return any(entry_of(tree, field.key) is not None for field in (_VERSION, _FLAGS, _SHARING, _IMEX)) or (
        resources is not None and isinstance(resources.value, Mapping)
    )


def read_nvidia(
    tree: Mapping, source: str, problems: list[ConfigError], notes: list[Note]
) -> tuple[Values, tuple[Rename, ...]]:
    """Values of our format and renamed resources; ``notes`` gets one line for every value that the file gives."""
    given = ROOT.read(tree, Origin(source, tree.line, tree.column), problems)
    values = Values(given.origin)
    values.broken = given.broken
    flags = given.section(_FLAGS)
    plugin = flags.section(_PLUGIN)
    for theirs, taken in ((flags, _TAKEN_FLAGS), (plugin, _TAKEN_PLUGIN), (given.section(_IMEX), _TAKEN_IMEX)):
        for one in taken:
            _take(one, theirs, values, notes)
    _take_cdi(plugin, values, notes)
    notes.extend(_without_meaning(flags, plugin, given.section(_SHARING)))
    notes.extend(notes_of(given))
    if _VERSION not in given:
        notes.append(Note(NoteKind.REMARK, given.place(_VERSION), "is not given, which means v1, as there"))
    return values, tuple(_renames(given.section(_RESOURCES), notes))


def _take(taken: _Taken, theirs: Values, values: Values, notes: list[Note]) -> None:
    if taken.there not in theirs:
        return
    place = theirs.place(taken.there)
    ours = values
    for inner in taken.sections:
        ours = ours.section(inner)
    ours.put(cast("ConfigField[object]", taken.here), theirs[cast("ConfigField[object]", taken.there)], place)
    notes.append(Note(NoteKind.TAKEN, place, f"taken as {taken.key}"))


def _take_cdi(plugin: Values, values: Values, notes: list[Note]) -> None:
    if not any(strategy.uses_cdi for strategy in plugin[_STRATEGIES]):
        return
    place = plugin.place(_STRATEGIES)
    defaults = values.section(option_fields.DEFAULTS)
    defaults.put(option_fields.CDI_MODE, CdiMode.FULL, place)
    hook = plugin[_HOOK] or DEFAULT_HOOK
    defaults.put(option_fields.HOOK, hook, plugin.place(_HOOK))
    notes.append(Note(NoteKind.TAKEN, place, f"CDI as there: taken as defaults.cdiMode full with the hook {hook}"))


def _without_meaning(flags: Values, plugin: Values, sharing: Values) -> Iterator[Note]:
    sections = ((_FLAGS, flags), (_PLUGIN, plugin))
    shared = ((some, sharing.section(some)) for some in (_TIME_SLICING, _MPS) if some in sharing)
    for kind, values in (*sections, *shared):
        fields = cast("Section", kind.type).fields
        for field in fields:
            if field in values and (isinstance(field.type, Anything | NoSharing) or field is _DISCOVERY):
                yield Note(NoteKind.IGNORED, values.place(field), f"has no meaning here: {field.help}")


def _renames(resources: Values, notes: list[Note]) -> Iterator[Rename]:
    for kind, items, pattern in (
        (DeviceKind.GPU, resources[_GPUS], _GPU_PATTERN),
        (DeviceKind.MIG, resources[_MIGS], _MIG_PATTERN),
    ):
        for item in items:
            if item.broken:
                continue
            name = item[_NAME] if item[_NAME].startswith(_DOMAIN) else f"{_DOMAIN}{item[_NAME]}"
            text = f"taken: offered as {document.clipped(name)} (NVIDIA's plugin reads and then overlooks this section)"
            notes.append(Note(NoteKind.TAKEN, item.origin, text))
            yield Rename(kind, item[pattern], name, item.origin, item.place(_NAME))


def correspondence() -> Iterator[tuple[str, str]]:
    """Every key of the format by its path, and what becomes of it here: for the reference page."""
    taken = {id(one.there): one.key for one in (*_TAKEN_FLAGS, *_TAKEN_PLUGIN, *_TAKEN_IMEX)}
    yield from _correspondence(ROOT, "", taken)


def _correspondence(part: Section, path: str, taken: dict[int, str]) -> Iterator[tuple[str, str]]:
    for field in part.fields:
        key = f"{path}{field.key}"
        if isinstance(field.type, Section):
            yield from _correspondence(field.type, f"{key}.", taken)
        elif id(field) in taken:
            also = ", with cdiMode full where one is of CDI" if field is _STRATEGIES else ""
            yield key, f"`{taken[id(field)]}`{also}"
        elif field in (_GPUS, _MIGS):
            yield key, "resources of those names, before the strategy's (NVIDIA's plugin overlooks this section)"
        elif isinstance(field.type, NoSharing):
            yield key, "refused unless empty: sharing is not served yet"
        elif field is _DISCOVERY:
            yield key, f"tegra is refused; {field.help}"
        elif field is _VERSION:
            yield key, "says that the file is of this format"
        else:
            yield key, f"no meaning: {field.help}"
