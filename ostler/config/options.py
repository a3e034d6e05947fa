"""Options of a resource: its own if given, else the file's, and only those that apply to its devices.

A default of the file is never wrong for one resource: options of NVIDIA's driver are left out for other vendors'
devices, options of NICs for GPUs. The same option in the resource itself is a contradiction, and is reported.
"""

from __future__ import annotations

from node.edits.options import CdiMode, EditOptions, IdStrategy, ListStrategy
from node.inventory.model import DeviceKind
from node.inventory.nics.parts import serves_network
from node.rules import Door, Doors, Selector
from node.values import Value, replace, value
from ostler.config import option_fields, schema
from ostler.config.errors import ConfigError, Origin
from ostler.config.section import AnyField, ConfigField, T, Values
from ostler.config.selection import serves_nics, serves_nvidia


@value
class Roots(Value):
    """Host folders in every rule's options."""

    driver: str
    dev: str


def edit_options(own: Values, defaults: Values, roots: Roots, selected: Selector) -> EditOptions:
    """How the selected devices are given to containers through the plugin door; the DRA door gives all by CDI.

    The door decides nothing here: a rule can change it, and devices under one name are alike whatever their door.
    """
    options = _options(own, defaults, roots)
    if not serves_nvidia(selected):
        options = _without_nvidia(options, own)
    if not serves_nics(selected):
        return options
    return replace(
        options, rdma=_gives_rdma(own, defaults, selected), vhost_net=pick(option_fields.VHOST_NET, own, defaults)
    )


def _options(own: Values, defaults: Values, roots: Roots) -> EditOptions:
    imex, default_imex = own.section(option_fields.IMEX), defaults.section(option_fields.IMEX)
    features = {"gdrcopy": option_fields.GDRCOPY, "gds": option_fields.GDS, "mofed": option_fields.MOFED}
    return EditOptions(
        strategies=pick(option_fields.STRATEGIES, own, defaults),
        ids=pick(option_fields.ID_STRATEGY, own, defaults),
        device_specs=pick(option_fields.DEVICE_SPECS, own, defaults),
        cdi_mode=pick(option_fields.CDI_MODE, own, defaults),
        cdi_annotation_prefix=pick(option_fields.ANNOTATION_PREFIX, own, defaults),
        driver_root=roots.driver,
        dev_root=roots.dev,
        hook=pick(option_fields.HOOK, own, defaults) or None,
        features=tuple(name for name, field in features.items() if pick(field, own, defaults)),
        imex_channels=pick(option_fields.CHANNELS, imex, default_imex),
        imex_required=pick(option_fields.CHANNELS_REQUIRED, imex, default_imex),
    )


def _without_nvidia(options: EditOptions, own: Values) -> EditOptions:
    """Options for devices that NVIDIA's container runtime does not know: ostler must pass their device nodes."""
    plain = EditOptions()
    strategies = tuple(some for some in options.strategies if some is not ListStrategy.VOLUME_MOUNTS)
    return replace(
        options,
        strategies=strategies or plain.strategies,
        ids=plain.ids,
        device_specs=own[option_fields.DEVICE_SPECS],
        cdi_mode=plain.cdi_mode,
        driver_root=plain.driver_root,
        dev_root=plain.dev_root,
        hook=None,
        features=(),
        imex_channels=(),
        imex_required=False,
    )


def _gives_rdma(own: Values, defaults: Values, selected: Selector) -> bool:
    wanted = selected.nic.rdma if selected.nic is not None else None
    if wanted is False:
        return False
    given = pick(option_fields.RDMA_DEVICES, own, defaults)
    return given if given is not None else bool(wanted) or selected.kinds == (DeviceKind.RDMA,)


def pick(field: ConfigField[T], own: Values, defaults: Values) -> T:
    """The resource's own value where given, else the file's or the default."""
    return own[field] if field in own else defaults[field]


def check_options(
    options: EditOptions, own: Values, defaults: Values, selected: Selector, problems: list[ConfigError]
) -> None:
    """Report options that cannot go together, each at the value that is easiest to change."""
    if (
        own.broken
        or defaults.broken
        or own.section(option_fields.IMEX).broken
        or defaults.section(option_fields.IMEX).broken
    ):
        return
    _check_meaning(own, selected, problems)
    _check_move(own, selected, problems)
    if own[schema.DOOR] is Doors.DRA:
        _check_door(own, problems)
    if not serves_nvidia(selected):
        return
    place = _place(option_fields.CDI_MODE, own, defaults)
    mode = options.cdi_mode
    # A mode without effect, because a closer setting chose other strategies, does no harm.
    meant = _rank(option_fields.CDI_MODE, own, defaults) >= _rank(option_fields.STRATEGIES, own, defaults)
    if mode is not CdiMode.NODES and not options.uses_cdi and not own[schema.DOOR].has(Door.DRA):
        if meant:
            fix = "add cdi-cri or cdi-annotations there, or remove cdiMode"
            problems.append(place.error(f"is {mode}, but deviceListStrategy has no strategy for CDI", fix))
    elif mode is CdiMode.FULL and options.hook is None:
        fix = "set hook to its path on the host, such as /usr/bin/nvidia-cdi-hook"
        problems.append(place.error("is full, which needs the vendor's hook program", fix))
    if options.imex_required and not options.imex_channels:
        place = _place(
            option_fields.CHANNELS_REQUIRED, own.section(option_fields.IMEX), defaults.section(option_fields.IMEX)
        )
        problems.append(place.error("is true, but there is no channel to require", "list channels in channelIDs"))


def _check_meaning(own: Values, selected: Selector, problems: list[ConfigError]) -> None:
    if not serves_nvidia(selected):
        for field, what in _nvidia_options(own):
            problem = f"{what} for NVIDIA's devices, which this resource does not select"
            problems.append(own.place(field).error(problem, "remove it"))
    if not serves_nics(selected):
        for option in _nic_options(own):
            fix = "remove it, or select NICs with 'devices: {kind: nic}'"
            problem = "is an option for NICs, which this resource does not select"
            problems.append(own.place(option).error(problem, fix))
    elif own[option_fields.RDMA_DEVICES] and selected.nic is not None and selected.nic.rdma is False:
        problem = "is true, but devices say rdma: false"
        problems.append(own.place(option_fields.RDMA_DEVICES).error(problem, "remove one of the two"))


def _check_move(own: Values, selected: Selector, problems: list[ConfigError]) -> None:
    if not own[option_fields.MOVE_INTERFACE] or not serves_nics(selected):
        return
    place, door = own.place(option_fields.MOVE_INTERFACE), own[schema.DOOR]
    if not door.has(Door.DRA):
        problem = f"is true, which only claims can use, but door is {door}"
        problems.append(place.error(problem, "set 'door: dra' or 'door: both', or remove it"))
    elif selected.drivers and not any(serves_network(driver) for driver in selected.drivers):
        problem = f"is true, but functions bound to {', '.join(selected.drivers)} have no network interface"
        problems.append(place.error(problem, "remove it, or select functions by their kernel driver"))


def _check_door(own: Values, problems: list[ConfigError]) -> None:
    """Options of the device plugin API that a claim has no use for."""
    fields: tuple[AnyField, ...] = (
        schema.IDS,
        schema.UNIFORM,
        option_fields.STRATEGIES,
        option_fields.DEVICE_SPECS,
        option_fields.ANNOTATION_PREFIX,
        option_fields.HINTS,
    )
    for field in fields:
        if field in own:
            problem = "has no effect with door dra, which passes devices by CDI and describes them by attributes"
            problems.append(own.place(field).error(problem, "remove it"))


def _nvidia_options(own: Values) -> list[tuple[AnyField, str]]:
    """Options in the resource that only NVIDIA's devices have, each with what it does."""
    imex = own.section(option_fields.IMEX)
    switches: tuple[tuple[AnyField, bool], ...] = (
        (option_fields.GDRCOPY, own[option_fields.GDRCOPY]),
        (option_fields.GDS, own[option_fields.GDS]),
        (option_fields.MOFED, own[option_fields.MOFED]),
        (option_fields.HOOK, bool(own[option_fields.HOOK])),
        (option_fields.IMEX, bool(imex[option_fields.CHANNELS] or imex[option_fields.CHANNELS_REQUIRED])),
    )
    found: list[tuple[AnyField, str]] = [(field, "is an option") for field, given in switches if given]
    if own[option_fields.ID_STRATEGY] is not IdStrategy.UUID:
        found.append((option_fields.ID_STRATEGY, f"is {own[option_fields.ID_STRATEGY]}, a choice"))
    if own[option_fields.CDI_MODE] is not CdiMode.NODES:
        found.append((option_fields.CDI_MODE, f"is {own[option_fields.CDI_MODE]}, a choice"))
    if ListStrategy.VOLUME_MOUNTS in own[option_fields.STRATEGIES]:
        found.append((option_fields.STRATEGIES, f"has {ListStrategy.VOLUME_MOUNTS}, a choice"))
    return found


def _nic_options(own: Values) -> list[AnyField]:
    """Options in the resource that only NICs have."""
    switches: tuple[tuple[AnyField, bool], ...] = (
        (option_fields.LINK_HEALTH, own[option_fields.LINK_HEALTH]),
        (option_fields.RDMA_DEVICES, bool(own[option_fields.RDMA_DEVICES])),
        (option_fields.VHOST_NET, own[option_fields.VHOST_NET]),
        (option_fields.MOVE_INTERFACE, own[option_fields.MOVE_INTERFACE]),
        (option_fields.NAMED_IN_USE, own[option_fields.NAMED_IN_USE] is option_fields.NamedInUse.WITHHOLD),
    )
    return [field for field, given in switches if given]


def _place(field: AnyField, own: Values, defaults: Values) -> Origin:
    return own.place(field) if field in own else defaults.place(field)


def _rank(field: AnyField, own: Values, defaults: Values) -> int:
    """How close to the resource a value is set: nowhere, in the file's defaults, by flag or variable, in it."""
    if field in own:
        return 3
    if field not in defaults:
        return 0
    return 1 if defaults.place(field).line is not None else 2
