"""Builds the settings from values of any format: the last step of reading, with the checks across sections.

MIG strategy and resources: without resources the strategy makes the rules. With resources these alone decide. ``mixed``
then only asserts that MIG devices are offered, and is an error if no resource selects any; ``single`` is always an
error, because it names MIG devices as whole GPUs, which the resources may contradict.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from node.edits.options import CdiMode
from node.inventory.model import DeviceKind
from node.rules import Door, Doors, Rule
from node.sharing import SharingStrategy
from node.values import Value, replace, value
from ostler.config import option_fields, schema
from ostler.config.conflicts import check_together, reached, sorts
from ostler.config.default_rules import NVIDIA_GPUS, Rename, nvidia_resources, other_rules
from ostler.config.document import shown
from ostler.config.errors import ConfigError, Note, NoteKind
from ostler.config.health import HEALTH, health_policy
from ostler.config.options import Roots, check_options, edit_options
from ostler.config.resources import PlacedRule, read_resources
from ostler.config.scalars import MAX_SOCKET_PATH
from ostler.config.section import Values
from ostler.config.settings import (
    MPS_SIZE,
    CdiSettings,
    DraSettings,
    EventsChoice,
    HoldsSettings,
    InventorySettings,
    KubeletSettings,
    KubernetesSettings,
    LogSettings,
    MigStrategy,
    MpsFileSystem,
    NvidiaSettings,
    OnOff,
    RootSettings,
    Settings,
    instance_socket,
)
from ostler.config.virtual_functions import function_rules

if TYPE_CHECKING:
    from ostler.config.nvidia_sharing import Share

_SOCKET_NAME = 33
"""Bytes of the shortest socket name that the door gives a resource: ``ostler-<12>-<8>.sock``."""

_DRA_SOCKET_NAME = 17
"""Bytes of the name of the DRA driver's socket: ``dra-<8>.sock``."""

_DRA_REGISTRATION_NAME = 34
"""Bytes of the shortest name of the socket by which the kubelet finds it: ``dra-<12>-<8>-reg.sock``."""

_HIDDEN_NAME = 16
"""Bytes of the name that a socket has until it is served: ``.ostler-<8>``."""


@value
class ForeignDefaults(Value):
    """Defaults that a foreign format's file implies beyond its values.

    ``renames``: names that take precedence over those of the MIG strategy. ``shares``: resources that are shared.
    ``nvidia_alone``: default rules are for NVIDIA's devices only. ``first_has_all``: a resource that never gets a
    device, because earlier ones take them all, is left out with a note instead of an error.
    """

    renames: tuple[Rename, ...] = ()
    shares: tuple[Share, ...] = ()
    nvidia_alone: bool = False
    first_has_all: bool = False


def build_settings(
    values: Values, implied: ForeignDefaults, problems: list[ConfigError], notes: list[Note]
) -> Settings:
    """The settings for these values; adds what is wrong to ``problems``."""
    nvidia = _nvidia(values, problems)
    roots = Roots(nvidia.driver_root, nvidia.dev_root)
    rules = _rules(values, implied, roots, problems, notes)
    if schema.RESOURCES not in values and not implied.nvidia_alone:
        rules += other_rules(values.section(option_fields.DEFAULTS), roots)
    kubernetes = _kubernetes(values)
    by_node = kubernetes.door_by_node
    full = any(
        rule.edits.cdi_mode is CdiMode.FULL and (rule.edits.uses_cdi or rule.door.has(Door.DRA) or by_node)
        for rule in rules
    )
    _check_folders(values, problems)
    _check_node_name(values, problems)
    _check_instance(values, problems)
    if by_node or any(rule.door.has(Door.DRA) for rule in rules):
        _check_dra(values, rules, problems, notes)
    kubelet, cdi = values.section(schema.KUBELET), values.section(schema.CDI)
    folders, inventory, log = (values.section(field) for field in (schema.ROOTS, schema.INVENTORY, schema.LOG))
    topology = values.section(schema.TOPOLOGY)[schema.TOPOLOGY_FILE]
    return Settings(
        node_name=values[schema.NODE_NAME],
        kubelet=KubeletSettings(
            Path(kubelet[schema.DEVICE_PLUGIN_DIR]), Path(kubelet[schema.REGISTRY_DIR]), kubelet[schema.REGISTRATION]
        ),
        roots=RootSettings(Path(folders[schema.SYS_ROOT]), Path(folders[schema.PROC_ROOT])),
        nvidia=NvidiaSettings(
            nvidia.driver_root,
            nvidia.driver_root_mount,
            nvidia.dev_root,
            nvidia.dev_root_mount,
            nvidia.library,
            full,
            nvidia.mps_root,
            nvidia.mps_size,
        ),
        cdi=CdiSettings(
            tuple(Path(folder) for folder in cdi[schema.CDI_SPEC_DIRECTORIES]), Path(cdi[schema.CDI_DIRECTORY])
        ),
        inventory=InventorySettings(inventory[schema.MAX_INTERVAL], inventory[schema.RECORDED]),
        log=LogSettings(log[schema.LOG_LEVEL], log[schema.LOG_FORMAT]),
        state_dir=Path(values.section(schema.STATE)[schema.STATE_DIRECTORY]),
        socket=Path(values[schema.SOCKET]),
        http=values.section(schema.HTTP)[schema.ADDRESS],
        instance=values[schema.INSTANCE_NAME],
        rules=rules,
        topology_file=Path(topology) if topology else None,
        kubernetes=kubernetes,
        holds=HoldsSettings(values.section(schema.HOLDS)[schema.IGNORE_PROCESSES]),
        health=health_policy(values.section(HEALTH), values.section(schema.DRA)[schema.TAINT_EFFECT], problems),
        dra=_dra(values),
        mig_config=_mig_config(values, problems),
        virtual_functions=function_rules(values, rules, problems, notes),
    )


def _mig_config(values: Values, problems: list[ConfigError]) -> tuple[Path, str] | None:
    nvidia = values.section(schema.NVIDIA)
    file, name = nvidia[schema.MIG_CONFIG_FILE], nvidia[schema.MIG_CONFIG]
    for field, given, other in ((schema.MIG_CONFIG_FILE, file, name), (schema.MIG_CONFIG, name, file)):
        if given and not other:
            missing = schema.MIG_CONFIG if field is schema.MIG_CONFIG_FILE else schema.MIG_CONFIG_FILE
            problems.append(nvidia.place(field).error(f"is set, but {missing.key} is not", "set both, or neither"))
    return (Path(file), name) if file and name else None


def needs_node_name(rules: tuple[Rule, ...]) -> str:
    """Why the node's name is needed, in words."""
    door = next((rule.door for rule in rules if rule.door.has(Door.DRA)), None)
    return "kubernetes.doorByNode is on" if door is None else f"a resource has door {door}"


def _kubernetes(values: Values) -> KubernetesSettings:
    kubernetes = values.section(schema.KUBERNETES)
    kubeconfig = kubernetes[schema.KUBECONFIG]
    return KubernetesSettings(
        kubernetes[schema.EVENTS],
        Path(kubeconfig) if kubeconfig else None,
        kubernetes[schema.DOOR_BY_NODE] is OnOff.ON,
        kubernetes[schema.PATCH_ALLOCATABLE] is OnOff.ON,
        kubernetes[schema.RECORDED_DEVICES] is OnOff.ON,
    )


def _dra(values: Values) -> DraSettings:
    dra = values.section(schema.DRA)
    registry = Path(values.section(schema.KUBELET)[schema.REGISTRY_DIR])
    folder = dra[schema.PLUGINS_DIR]
    return DraSettings(
        dra[schema.DRIVER_NAME],
        Path(folder) if folder else registry.parent / "plugins",
        dra[schema.ALSO_PUBLISH_AS],
        dra[schema.DEVICE_METADATA],
        dra[schema.REQUIRE_DEVICE_METADATA],
        Path(dra[schema.NRI_SOCKET]),
    )


def _nvidia(values: Values, problems: list[ConfigError]) -> NvidiaSettings:
    given = values.section(schema.NVIDIA)
    driver_root = given[schema.DRIVER_ROOT]
    driver_mount = given[schema.DRIVER_ROOT_MOUNT] or driver_root
    dev_root = given[schema.DEV_ROOT] or driver_root
    dev_mount = given[schema.DEV_ROOT_MOUNT] or (driver_mount if dev_root == driver_root else dev_root)
    library = given[schema.LIBRARY]
    own = given[schema.MPS_FILE_SYSTEM] is MpsFileSystem.PER_DAEMON
    if not own and given[schema.MPS_FILE_SYSTEM_SIZE] is not None:
        problem = "is set, but mpsFileSystem is provided, whose size you choose when you mount it"
        fix = "remove it, or set 'mpsFileSystem: perDaemon'"
        problems.append(given.place(schema.MPS_FILE_SYSTEM_SIZE).error(problem, fix))
    return NvidiaSettings(
        driver_root,
        Path(driver_mount),
        dev_root,
        Path(dev_mount),
        Path(library) if library else None,
        mps_root=given[schema.MPS_ROOT],
        mps_size=(given[schema.MPS_FILE_SYSTEM_SIZE] or MPS_SIZE) if own else None,
    )


def _rules(
    values: Values, implied: ForeignDefaults, roots: Roots, problems: list[ConfigError], notes: list[Note]
) -> tuple[Rule, ...]:
    defaults, renames = values.section(option_fields.DEFAULTS), implied.renames
    if schema.RESOURCES in values:
        placed = read_resources(values[schema.RESOURCES], defaults, roots, problems)
        complete = len(placed) == len(values[schema.RESOURCES])
        if implied.first_has_all:
            placed = reached(placed, notes)
        check_together(placed, problems, notes)
        _check_strategy(values, placed, complete, problems, notes)
        return _with_mps((one.rule for one in placed), values)
    nothing = Values(defaults.origin)
    options = edit_options(nothing, defaults, roots, NVIDIA_GPUS)
    check_options(options, nothing, defaults, NVIDIA_GPUS, problems)
    strategy = values.section(schema.NVIDIA)[schema.MIG_STRATEGY]
    placed = nvidia_resources(values, renames, implied.shares, roots=roots, problems=problems, notes=notes)
    for rename in renames:
        if rename.kind is DeviceKind.MIG and strategy is MigStrategy.NONE:
            text = "is ignored: migStrategy none does not offer MIG devices"
            notes.append(Note(NoteKind.IGNORED, rename.origin, text))
    return _with_mps((one.rule for one in placed), values)


def _with_mps(rules: Iterable[Rule], values: Values) -> tuple[Rule, ...]:
    """The rules, in which those that share devices by MPS have the folder of its daemon."""
    root = values.section(schema.NVIDIA)[schema.MPS_ROOT]
    return tuple(
        replace(rule, edits=replace(rule.edits, mps=(root, rule.resource)))
        if rule.sharing is not None and rule.sharing.strategy is SharingStrategy.MPS
        else rule
        for rule in rules
    )


def _check_strategy(
    values: Values, placed: tuple[PlacedRule, ...], complete: bool, problems: list[ConfigError], notes: list[Note]
) -> None:
    nvidia = values.section(schema.NVIDIA)
    strategy, place = nvidia[schema.MIG_STRATEGY], nvidia.place(schema.MIG_STRATEGY)
    offers_mig = any(kind is DeviceKind.MIG for one in placed for kind, _ in sorts(one.rule.selector))
    if strategy is MigStrategy.SINGLE:
        problem = "is single, which names MIG devices as whole GPUs, but resources decide all names"
        problems.append(place.error(problem, "remove migStrategy or resources"))
    elif strategy is MigStrategy.MIXED and not offers_mig:
        if complete:
            problem = "is mixed, but resources decide what is offered, and none of them selects MIG devices"
            fix = "add {name: 'nvidia.com/mig-{profile}', devices: {kind: mig}} to resources, or remove migStrategy"
            problems.append(place.error(problem, fix))
    elif strategy is MigStrategy.MIXED:
        notes.append(Note(NoteKind.REMARK, place, "adds no rule, because resources decide what is offered"))


def _check_folders(values: Values, problems: list[ConfigError]) -> None:
    kubelet = values.section(schema.KUBELET)
    plugins, registry = kubelet[schema.DEVICE_PLUGIN_DIR], kubelet[schema.REGISTRY_DIR]
    if plugins == registry:
        given, other = schema.REGISTRY_DIR, schema.DEVICE_PLUGIN_DIR
        if given not in kubelet:
            given, other = other, given
        problem = f"is the same folder as {other.key}"
        problems.append(kubelet.place(given).error(problem, "set the two folders of the kubelet"))
    longest = MAX_SOCKET_PATH - 1 - _SOCKET_NAME
    for field, folder in ((schema.DEVICE_PLUGIN_DIR, plugins), (schema.REGISTRY_DIR, registry)):
        size = len(folder.encode("utf-8", "surrogateescape"))
        if size > longest:
            problem = f"has {size} bytes, too long for the path of a socket in it"
            problems.append(kubelet.place(field).error(problem, f"use a folder of at most {longest} bytes"))
    state = values.section(schema.STATE)
    ours = (
        (values.place(schema.SOCKET), values[schema.SOCKET]),
        (state.place(schema.STATE_DIRECTORY), state[schema.STATE_DIRECTORY]),
    )
    for place, path in ours:
        for folder in (plugins, registry):
            if f"{path}/".startswith(f"{folder.rstrip('/')}/"):
                problem = f"is {shown(path)}, inside the kubelet's folder {shown(folder)}, which the kubelet cleans up"
                problems.append(place.error(problem, "use a separate folder, such as /run/ostler or /var/lib/ostler"))


def _check_node_name(values: Values, problems: list[ConfigError]) -> None:
    """Report settings that write to the own Node without its name."""
    kubernetes = values.section(schema.KUBERNETES)
    places = {
        kubernetes.place(schema.EVENTS): kubernetes[schema.EVENTS] is EventsChoice.ON,
        kubernetes.place(schema.PATCH_ALLOCATABLE): kubernetes[schema.PATCH_ALLOCATABLE] is OnOff.ON,
        kubernetes.place(schema.RECORDED_DEVICES): kubernetes[schema.RECORDED_DEVICES] is OnOff.ON,
    }
    for place, is_on in places.items():
        if is_on and not values[schema.NODE_NAME]:
            fix = "set nodeName; in a pod, set OSTLER_NODE_NAME from spec.nodeName"
            problems.append(place.error("is on, but nodeName is not set", fix))


def _check_dra(values: Values, rules: tuple[Rule, ...], problems: list[ConfigError], notes: list[Note]) -> None:
    """Check what the DRA door needs: the node's name for its pool, and room for the names of its sockets.

    Often only the agent gets the name, from a variable of its pod, so that a file without it only gets a note.
    """
    dra, settings = values.section(schema.DRA), _dra(values)
    if not values[schema.NODE_NAME]:
        text = f"is not set, but 'ostler run' needs it, because {needs_node_name(rules)}"
        notes.append(Note(NoteKind.REMARK, values.place(schema.NODE_NAME), text))
    if any(rule.door is Doors.BOTH for rule in rules):
        text = (
            "door both needs an API server that keeps device taints and the kubelet's pod resources; "
            "if one is missing, devices are offered only through the plugin door, and 'ostler status' says why"
        )
        notes.append(Note(NoteKind.REMARK, values.place(schema.RESOURCES), text))
    kubelet = values.section(schema.KUBELET)
    for field in (schema.REGISTRY_DIR, schema.DEVICE_PLUGIN_DIR):
        if settings.plugins_dir == Path(kubelet[field]):
            problem = f"is the same folder as {kubelet.place(field).key}"
            problems.append(dra.place(schema.PLUGINS_DIR).error(problem, "set the kubelet's folder plugins"))
    folder = settings.plugins_dir / settings.driver_name
    size, longest = len(os.fsencode(folder)), MAX_SOCKET_PATH - 1 - _DRA_SOCKET_NAME
    if size > longest:
        problem = f"makes the folder {shown(str(folder))}, too long for the path of a socket in it"
        place = dra.place(schema.PLUGINS_DIR if schema.PLUGINS_DIR in dra else schema.DRIVER_NAME)
        problems.append(place.error(problem, f"use shorter names: the folder may have {longest} bytes, not {size}"))
    size, longest = len(os.fsencode(kubelet[schema.REGISTRY_DIR])), MAX_SOCKET_PATH - 1 - _DRA_REGISTRATION_NAME
    if longest < size <= MAX_SOCKET_PATH - 1 - _SOCKET_NAME:  # A longer one is too long for the plugin door as well.
        problem = f"has {size} bytes, too long for the path of the DRA driver's socket in it"
        place = kubelet.place(schema.REGISTRY_DIR)
        problems.append(place.error(problem, f"use a folder of at most {longest} bytes"))


def _check_instance(values: Values, problems: list[ConfigError]) -> None:
    instance = values[schema.INSTANCE_NAME]
    if not instance:
        return
    path = instance_socket(Path(values.section(schema.STATE)[schema.STATE_DIRECTORY]), instance)
    # The socket has a hidden name until it is ready.
    size = max(len(os.fsencode(path)), len(os.fsencode(path.parent)) + 1 + _HIDDEN_NAME)
    if size > MAX_SOCKET_PATH:
        problem = f"makes the path of its socket in {path.parent} {size} bytes long"
        fix = f"use a shorter name or state folder: a socket's path may have {MAX_SOCKET_PATH} bytes"
        problems.append(values.place(schema.INSTANCE_NAME).error(problem, fix))
