"""Rules out of what a configuration says of resources, and everything that is checked about them.

Each rule is judged alone (name, options, a selection that nothing can meet), then all of them together (two with one
resource and different options, one that never gets a device because earlier ones have them all). The default rules of
the MIG strategies are made here too. Broken sections are left out of judgements: their own problems are reported.
"""

from __future__ import annotations

import re
from dataclasses import fields

from node.edits.options import CdiMode, EditOptions
from node.inventory.model import DeviceKind
from node.names import explain_resource_name
from node.rules import PROFILE, Rule, Selector
from node.values import Value, value
from ostler.config import schema
from ostler.config.document import clipped, shown
from ostler.config.errors import ConfigError, Origin
from ostler.config.section import AnyField, Field, T, Values
from ostler.config.settings import MigStrategy

LONGEST_PROFILE = "1c.7g.288gb+me.all"
"""As long as a MIG profile gets: a part of a compute instance, three digits of memory, all media engines."""

GPU_RESOURCE = "nvidia.com/gpu"
MIG_RESOURCE = f"nvidia.com/mig-{PROFILE}"


@value
class PlacedRule(Value):
    """A rule and where it stands; ``label`` names it in messages about others."""

    rule: Rule
    origin: Origin
    name: Origin

    @property
    def label(self) -> str:
        """``resources[0] (line 5)``."""
        return f"{self.origin.key} (line {self.origin.line})"


@value
class Rename(Value):
    """Devices that go under another name than a MIG strategy's: an item of NVIDIA's ``resources``."""

    kind: DeviceKind
    pattern: str
    resource: str
    origin: Origin
    name: Origin


@value
class Roots(Value):
    """Host folders that go into every rule's options."""

    driver: str
    dev: str


def default_rules(strategy: MigStrategy, options: EditOptions) -> tuple[Rule, ...]:
    """What a MIG strategy offers when no resources are given (NVIDIA's device plugin, strategies of the same names)."""
    gpus = Selector(kinds=(DeviceKind.GPU,), vendors=("nvidia",))
    plain = Selector(kinds=(DeviceKind.GPU,), vendors=("nvidia",), mig_enabled=False)
    migs = Selector(kinds=(DeviceKind.MIG,), vendors=("nvidia",))
    whole = Selector(kinds=(DeviceKind.MIG,), vendors=("nvidia",), whole_instances=True)
    match strategy:
        case MigStrategy.NONE:
            return (Rule(GPU_RESOURCE, gpus, edits=options),)
        case MigStrategy.MIXED:
            return (Rule(GPU_RESOURCE, plain, edits=options), Rule(MIG_RESOURCE, whole, edits=options))
        case MigStrategy.SINGLE:
            return tuple(Rule(GPU_RESOURCE, some, edits=options, uniform=True) for some in (plain, migs))


def renamed_rules(
    renames: tuple[Rename, ...], strategy: MigStrategy, options: EditOptions, problems: list[ConfigError]
) -> tuple[PlacedRule, ...]:
    """Rules that stand before the strategy's and take what they rename; without a strategy MIG devices are not seen."""
    placed = []
    for rename in renames:
        if rename.kind is DeviceKind.GPU:
            mig_enabled = None if strategy is MigStrategy.NONE else False
            selected = Selector((rename.kind,), ("nvidia",), products=(rename.pattern,), mig_enabled=mig_enabled)
        elif strategy is MigStrategy.NONE:
            continue
        else:
            whole = strategy is MigStrategy.MIXED
            selected = Selector((rename.kind,), ("nvidia",), profiles=(rename.pattern,), whole_instances=whole)
        rule = Rule(rename.resource, selected, edits=options, uniform=strategy is MigStrategy.SINGLE)
        if check_name(rule, rename.name, problems):
            placed.append(PlacedRule(rule, rename.origin, rename.name))
    return tuple(placed)


def edit_options(own: Values, defaults: Values, roots: Roots) -> EditOptions:
    """Options of a resource: its own where given, else those of ``defaults``."""
    imex, default_imex = own.section(schema.IMEX), defaults.section(schema.IMEX)
    features = {"gdrcopy": schema.GDRCOPY, "gds": schema.GDS, "mofed": schema.MOFED}
    return EditOptions(
        strategies=_pick(schema.STRATEGIES, own, defaults),
        ids=_pick(schema.ID_STRATEGY, own, defaults),
        device_specs=_pick(schema.DEVICE_SPECS, own, defaults),
        cdi_mode=_pick(schema.CDI_MODE, own, defaults),
        cdi_annotation_prefix=_pick(schema.ANNOTATION_PREFIX, own, defaults),
        driver_root=roots.driver,
        dev_root=roots.dev,
        hook=_pick(schema.HOOK, own, defaults) or None,
        features=tuple(name for name, field in features.items() if _pick(field, own, defaults)),
        imex_channels=_pick(schema.CHANNELS, imex, default_imex),
        imex_required=_pick(schema.CHANNELS_REQUIRED, imex, default_imex),
    )


def _pick(field: Field[T], own: Values, defaults: Values) -> T:
    return own[field] if field in own else defaults[field]


def check_options(options: EditOptions, own: Values, defaults: Values, problems: list[ConfigError]) -> None:
    """Report options that cannot go together, each at the value that is easiest to change."""
    if own.broken or defaults.broken or own.section(schema.IMEX).broken or defaults.section(schema.IMEX).broken:
        return
    place = _place(schema.CDI_MODE, own, defaults)
    mode = options.cdi_mode
    # A mode that strategies given at a closer place have made idle does no harm.
    meant = _rank(schema.CDI_MODE, own, defaults) >= _rank(schema.STRATEGIES, own, defaults)
    if mode is not CdiMode.NODES and not options.uses_cdi:
        if meant:
            fix = "add cdi-cri or cdi-annotations there, or remove cdiMode"
            problems.append(place.error(f"is {mode}, but deviceListStrategy has none for CDI", fix))
    elif mode is CdiMode.FULL and options.hook is None:
        fix = "set hook to its path on the host, such as /usr/bin/nvidia-cdi-hook"
        problems.append(place.error("is full, which needs the vendor's hook program", fix))
    if options.imex_required and not options.imex_channels:
        place = _place(schema.CHANNELS_REQUIRED, own.section(schema.IMEX), defaults.section(schema.IMEX))
        problems.append(place.error("is true, but there is no channel to require", "list channels in channelIDs"))


def _place(field: AnyField, own: Values, defaults: Values) -> Origin:
    return own.place(field) if field in own else defaults.place(field)


def _rank(field: AnyField, own: Values, defaults: Values) -> int:
    """How close to the resource a value is given: not at all, in the file's defaults, by flag or variable, in it."""
    if field in own:
        return 3
    if field not in defaults:
        return 0
    return 1 if defaults.place(field).line is not None else 2


def selector(devices: Values) -> Selector:
    """The selector that a ``devices`` section describes."""
    kinds = devices[schema.KINDS]
    if devices[schema.MIG_ENABLED] is not None and not kinds:
        kinds = (DeviceKind.GPU,)  # MIG mode is a fact of whole GPUs
    return Selector(
        kinds=kinds,
        vendors=tuple(vendor.value for vendor in devices[schema.VENDORS]),
        products=devices[schema.PRODUCTS],
        profiles=devices[schema.PROFILES],
        uuids=devices[schema.UUIDS],
        pci_addresses=devices[schema.PCI_ADDRESSES],
        names=devices[schema.NAMES],
        mig_enabled=devices[schema.MIG_ENABLED],
        whole_instances=devices[schema.WHOLE_INSTANCES],
    )


def read_resources(
    resources: tuple[Values, ...], defaults: Values, roots: Roots, problems: list[ConfigError]
) -> tuple[PlacedRule, ...]:
    """The rules of the ``resources`` list that could be read, each checked alone."""
    placed = []
    for values in resources:
        devices = values.section(schema.DEVICES)
        options = edit_options(values, defaults, roots)
        check_options(options, values, defaults, problems)
        name = values.place(schema.RESOURCE_NAME)
        rule = Rule(
            values[schema.RESOURCE_NAME], selector(devices), values[schema.DOOR], values[schema.IDS], edits=options
        )
        named = False
        if not devices.broken:
            check_selection(rule.selector, devices, problems)
            named = schema.RESOURCE_NAME in values and check_name(rule, name, problems)
        if named and not (values.broken or values.section(schema.IMEX).broken):
            placed.append(PlacedRule(rule, values.origin, name))
    return tuple(placed)


def check_selection(selected: Selector, devices: Values, problems: list[ConfigError]) -> None:
    """Report keys of ``devices`` that exclude each other."""
    if DeviceKind.MIG not in selected.kinds and selected.kinds:
        for field, given in ((schema.PROFILES, selected.profiles), (schema.WHOLE_INSTANCES, selected.whole_instances)):
            if given:
                cause = "kind gpu" if schema.KINDS in devices else "migEnabled"
                problem = f"is a fact of MIG devices, which {cause} excludes"
                problems.append(devices.place(field).error(problem, "remove one of the two"))
    if selected.mig_enabled is not None and DeviceKind.MIG in selected.kinds:
        place = devices.place(schema.MIG_ENABLED)
        problems.append(place.error("is a fact of whole GPUs, but kind has mig", "remove it, or select kind gpu alone"))


def check_name(rule: Rule, place: Origin, problems: list[ConfigError]) -> bool:
    """Whether a kubelet takes the name, with the longest profile filled in where it has a place for it.

    Reports why when it does not.
    """
    for placeholder in re.findall(r"\{[^}]*\}?", rule.resource):
        if placeholder != PROFILE:
            problems.append(place.error(f"holds {shown(placeholder)}", f"the only placeholder is {PROFILE}"))
            return False
    only_mig = rule.selector.kinds == (DeviceKind.MIG,) or rule.selector.profiles or rule.selector.whole_instances
    if PROFILE in rule.resource and not only_mig:
        fix = "select MIG devices alone with 'devices: {kind: mig}', or write the name out"
        problems.append(place.error(f"holds {PROFILE}, which whole GPUs do not have", fix))
        return False
    profile = _longest_profile(rule.selector)
    name = rule.resource.replace(PROFILE, profile.replace("+", "."))
    reason = explain_resource_name(name)
    if reason is not None:
        problem, _, fix = reason.removeprefix(f"resource name {name!r} ").partition("; ")
        filled = f" with the profile {clipped(profile)}" if PROFILE in rule.resource else ""
        problems.append(place.error(f"is {shown(rule.resource)} and{filled} {problem}", fix))
    return reason is None


def _longest_profile(selected: Selector) -> str:
    if selected.profiles and not any("*" in pattern for pattern in selected.profiles):
        return max(selected.profiles, key=len)
    return LONGEST_PROFILE.removeprefix("1c.") if selected.whole_instances else LONGEST_PROFILE


_OPTION_KEYS = {
    "strategies": "deviceListStrategy",
    "ids": "deviceIDStrategy",
    "device_specs": "passDeviceSpecs",
    "cdi_mode": "cdiMode",
    "cdi_annotation_prefix": "cdiAnnotationPrefix",
    "hook": "hook",
    "features": "gdrcopy, gds or mofed",
    "imex_channels": "imex.channelIDs",
    "imex_required": "imex.required",
}


def differences(one: Rule, other: Rule) -> str:
    """The keys in which two rules treat their devices differently, empty when they do not."""
    keys = [key for key, a, b in (("door", one.door, other.door), ("ids", one.ids, other.ids)) if a is not b]
    names = (field.name for field in fields(EditOptions))
    keys.extend(
        _OPTION_KEYS.get(name, name) for name in names if getattr(one.edits, name) != getattr(other.edits, name)
    )
    return ", ".join(keys)
