"""The configuration of NVIDIA's device plugin (``version: v1``, or none), read into the values of our own format.

For nodes that change over: the same file gives the same resources. Every key is either taken, without meaning here
(with the reason), or refused because what is offered would differ: Tegra is not found. Its section ``sharing`` is read
by ``nvidia_sharing``.
Keys that NVIDIA's plugin would overlook in silence (a misspelt one) are errors here.

A key that the file leaves out has our default, also where the plugin's differs, with one exception: the plugin's CDI
strategies always write full specs with hooks, so they do here (``cdiMode: full``).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import cast

from node.edits.options import CdiMode, IdStrategy, ListStrategy
from node.inventory.model import DeviceKind
from node.sharing import SharePreference
from node.values import Value, value
from ostler.config import document, nvidia_sharing, option_fields, schema
from ostler.config.default_rules import Rename
from ostler.config.document import Mapping
from ostler.config.errors import ConfigError, Note, NoteKind, Origin
from ostler.config.foreign import Anything, GoSection, entry_of, notes_of
from ostler.config.nvidia_sharing import Share
from ostler.config.patterns import Pattern, ProfilePattern
from ostler.config.scalars import Boolean, Choice, HostPath, Integer, Text
from ostler.config.section import AnyField, ConfigField, ConfigList, Section, Values, section, section_of
from ostler.config.settings import MigStrategy

DEFAULT_HOOK = "/usr/bin/nvidia-ctk"
"""The default of ``nvidiaCTKPath`` in NVIDIA's plugin, for its CDI specs."""


class _VersionWord(Choice[str]):
    """The version; nothing is v1."""

    def from_text(self, text: str) -> str:
        """See ``ValueType``."""
        return super().from_text(text or "v1")


class _Discovery(StrEnum):
    AUTO = "auto"
    NVML = "nvml"


def _keys(*fields: AnyField) -> GoSection:
    """A section as NVIDIA's plugin reads it: by a library that turns YAML into JSON, and so sorts the keys."""
    return GoSection(*fields, by_sorted_keys=True)


def _ignored(key: str, reason: str) -> ConfigField[bool]:
    return ConfigField(key, Anything(), False, reason)


_NO_LABELS = "ostler creates no node labels"
_VERSION = ConfigField("version", _VersionWord(("v1",)), "v1", "Version of the format.")
_MIG = ConfigField("migStrategy", Choice(MigStrategy), MigStrategy.NONE, "MIG strategy.")
_DRIVER_ROOT = ConfigField("nvidiaDriverRoot", HostPath("/run/nvidia/driver"), "/", "Host folder of the driver.")
_DEV_ROOT = ConfigField("nvidiaDevRoot", HostPath("/run/nvidia/driver", optional=True), "", "Host folder of dev/.")
_GDRCOPY = ConfigField("gdrcopyEnabled", Boolean(), False, "GDRCopy.")
_GDS = ConfigField("gdsEnabled", Boolean(), False, "GPUDirect Storage.")
_MOFED = ConfigField("mofedEnabled", Boolean(), False, "MOFED.")
_DISCOVERY = ConfigField(
    "deviceDiscoveryStrategy",
    Choice(_Discovery, later={"tegra": "is tegra, whose devices ostler does not find"}),
    _Discovery.AUTO,
    "ostler always finds devices through NVML",
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
_POLICY = ConfigField(
    "sharedDevicesAllocationPolicy",
    Choice(SharePreference),
    SharePreference.DISTRIBUTED,
    "Which devices give shares first.",
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
        _POLICY,
    ),
    "Flags of the plugin.",
)
_MPS_ROOT = ConfigField("mpsRoot", HostPath("/run/nvidia/mps", optional=True), "", "Host folder of MPS.")
_FLAGS = section(
    "flags",
    _keys(
        _MIG,
        _ignored("failOnInitError", "the agent waits for a missing driver and reports it"),
        _MPS_ROOT,
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
_SHARING = section("sharing", _keys(nvidia_sharing.TIME_SLICING, nvidia_sharing.MPS), "Sharing.")
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
    _Taken(_MPS_ROOT, (schema.NVIDIA,), schema.MPS_ROOT),
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
) -> tuple[Values, tuple[Rename, ...], tuple[Share, ...]]:
    """Values of our format, renamed and shared resources; ``notes`` gets a line for every value that the file gives."""
    given = ROOT.read(tree, Origin(source, tree.line, tree.column), problems)
    values = Values(given.origin)
    values.broken = given.broken
    flags = given.section(_FLAGS)
    plugin = flags.section(_PLUGIN)
    for theirs, taken in ((flags, _TAKEN_FLAGS), (plugin, _TAKEN_PLUGIN), (given.section(_IMEX), _TAKEN_IMEX)):
        for one in taken:
            _take(one, theirs, values, notes)
    _take_cdi(plugin, values, notes)
    notes.extend(_without_meaning(flags, plugin))
    shares = nvidia_sharing.read_shares(given.section(_SHARING), plugin[_POLICY], problems, notes)
    if _POLICY in plugin:
        policy = f"taken as sharing.preference {plugin[_POLICY]} of shared resources"
        kind, text = (NoteKind.TAKEN, policy) if shares else (NoteKind.IGNORED, "is ignored: nothing is shared")
        notes.append(Note(kind, plugin.place(_POLICY), text))
    notes.extend(notes_of(given))
    if _VERSION not in given:
        notes.append(
            Note(NoteKind.REMARK, given.place(_VERSION), "is not given, which means v1, as for NVIDIA's plugin")
        )
    return values, tuple(_renames(given.section(_RESOURCES), notes)), shares


def _take(taken: _Taken, theirs: Values, values: Values, notes: list[Note]) -> None:
    if taken.there not in theirs:
        return
    place = theirs.place(taken.there)
    if taken.there is _MPS_ROOT and not theirs[_MPS_ROOT]:
        notes.append(Note(NoteKind.IGNORED, place, "is ignored: it is empty"))
        return
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
    notes.append(
        Note(NoteKind.TAKEN, place, f"CDI as in NVIDIA's plugin: taken as defaults.cdiMode full with the hook {hook}")
    )


def _without_meaning(flags: Values, plugin: Values) -> Iterator[Note]:
    for kind, values in ((_FLAGS, flags), (_PLUGIN, plugin)):
        for field in cast("Section", kind.type).fields:
            if field in values and (isinstance(field.type, Anything) or field is _DISCOVERY):
                yield Note(NoteKind.IGNORED, values.place(field), f"is ignored: {field.help}")


def _renames(resources: Values, notes: list[Note]) -> Iterator[Rename]:
    for kind, items, pattern in (
        (DeviceKind.GPU, resources[_GPUS], _GPU_PATTERN),
        (DeviceKind.MIG, resources[_MIGS], _MIG_PATTERN),
    ):
        for item in items:
            if item.broken:
                continue
            name = nvidia_sharing.qualified(item[_NAME])
            text = (
                f"taken: offered as {document.clipped(name)} (NVIDIA's plugin reads this section and then ignores it)"
            )
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
            also = ", with cdiMode full if one of them uses CDI" if field is _STRATEGIES else ""
            yield key, f"`{taken[id(field)]}`{also}"
        elif field in (_GPUS, _MIGS):
            yield key, "resources with these names, before the strategy's (NVIDIA's plugin ignores this section)"
        elif id(field) in nvidia_sharing.CORRESPONDENCE:
            yield key, nvidia_sharing.CORRESPONDENCE[id(field)]
            inner = section_of(field)
            if inner is not None:
                yield from _correspondence(inner, f"{key}[].", taken)
        elif field is _POLICY:
            yield key, "`resources[].sharing.preference` of shared resources"
        elif field is _DISCOVERY:
            yield key, f"tegra is refused; {field.help}"
        elif field is _VERSION:
            yield key, "identifies the format"
        else:
            yield key, f"ignored: {field.help}"
