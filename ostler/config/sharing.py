"""How the devices of a resource are shared or partitioned: the keys ``sharing`` and ``partitions``, and their checks.

The checks here know no devices. ``Sharing.unsuited`` checks what depends on a device when it is offered: how many
clients its MPS takes, and whether the limits of all replicas fit into its memory.
"""

from __future__ import annotations

import re
from enum import StrEnum

from node.inventory.model import DeviceKind
from node.rules import Door, Doors, Rule
from node.sharing import MOST_CLIENTS, SharePreference, Sharing, SharingStrategy
from ostler.config.document import shown
from ostler.config.errors import ConfigError, Origin
from ostler.config.mig import check_divisible
from ostler.config.patterns import Pattern
from ostler.config.scalars import BadValue, Boolean, Choice, Integer, JsonObject, Size
from ostler.config.section import AnyField, ConfigField, ConfigList, Section, Values, section
from ostler.config.selection import serves_nics

MOST_REPLICAS = 1024


class SharedDevicePattern(Pattern):
    """The name, UUID or driver's index of a device; an index needs no quotes."""

    example = '"GPU-1f5e*"'
    accepts = "a name, UUID or index, with * for any characters"
    takes_any = True

    def check(self, text: str) -> None:
        """See ``Pattern``."""
        super().check(text)
        if not re.fullmatch(r"[a-z0-9*-]+|(GPU|MIG)-[0-9a-f*/GPU-]*|[0-9]+:[0-9]+", text):
            fix = "write a name of 'ostler devices', a UUID such as GPU-1f5e*, or an index such as 0 or 0:1"
            raise BadValue(f"is {shown(text)}, which no device matches", fix)

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": ["string", "integer"], "minLength": 1}


class PartitionsChoice(StrEnum):
    """Whether partitions are made of the GPUs of a resource."""

    NONE = "none"
    ON_DEMAND = "onDemand"


STRATEGY = ConfigField(
    "strategy",
    Choice(SharingStrategy),
    SharingStrategy.TIME_SLICING,
    "timeSlicing: pods take turns, and nothing limits their memory. mps: NVIDIA's Multi-Process Service limits memory"
    " and threads of each share.",
)
REPLICAS = ConfigField(
    "replicas", Integer(2, MOST_REPLICAS, 4), 2, "Shares of each device (mps: at most 48).", required=True
)
DEVICE: ConfigField[str] = ConfigField(
    "device", SharedDevicePattern(), "", "Device name, UUID or the driver's index.", required=True
)
OWN_REPLICAS = ConfigField(
    "replicas", Integer(1, MOST_REPLICAS, 2), 1, "Shares of such a device; 1: it is not shared.", required=True
)
PER_DEVICE: ConfigField[tuple[Values, ...]] = ConfigField(
    "perDevice",
    ConfigList(Section(DEVICE, OWN_REPLICAS), fewest=1, unique=False),
    (),
    "Devices with another number of shares; the first item that matches a device counts.",
)
FAIL_MULTIPLE = ConfigField(
    "failRequestsGreaterThanOne",
    Boolean(),
    False,
    "Refuse a container that asks for more than one share: two shares are not twice the compute time.",
)
SAME_DEVICE = ConfigField(
    "sameDevice",
    Boolean(),
    False,
    "Whether a container with several shares may get two of one device although another has one left.",
)
PREFERENCE = ConfigField(
    "preference",
    Choice(SharePreference),
    SharePreference.DISTRIBUTED,
    "Which devices give shares first: those with the fewest shares allocated (distributed), or with the most (packed).",
)
MEMORY_LIMIT: ConfigField[int | None] = ConfigField(
    "memoryLimit", Size(), None, "Device memory of each share, for mps; absent: an equal part of the device's."
)
THREADS: ConfigField[int | None] = ConfigField(
    "threadPercentage",
    Integer(1, 100, 25),
    None,
    "Percentage of the device's threads that each share may use at most, for mps; absent: an equal part.",
)
SHARING = section(
    "sharing",
    Section(STRATEGY, REPLICAS, PER_DEVICE, FAIL_MULTIPLE, SAME_DEVICE, PREFERENCE, MEMORY_LIMIT, THREADS),
    "Several pods share each device of this resource. Absent: one pod at a time.",
)
PARTITIONS = ConfigField(
    "partitions",
    Choice(PartitionsChoice),
    PartitionsChoice.NONE,
    "onDemand: claims may ask for a MIG partition of a GPU of this resource, which is made for the claim and removed"
    " after it; needs door dra or both.",
)


def sharing_of(own: Values) -> Sharing | None:
    """How a resource is shared; None for one that is not."""
    if SHARING not in own:
        return None
    given = own[SHARING]
    return Sharing(
        given[STRATEGY],
        given[REPLICAS],
        tuple((item[DEVICE], item[OWN_REPLICAS]) for item in given[PER_DEVICE]),
        fail_multiple=given[FAIL_MULTIPLE],
        same_device=given[SAME_DEVICE],
        preference=given[PREFERENCE],
        memory_limit=given[MEMORY_LIMIT],
        thread_percentage=given[THREADS],
    )


def values_of(sharing: Sharing, origin: Origin) -> Values:
    """The section that means this sharing; all its values come from ``origin``."""
    silent = Origin(origin.source)
    values, items = Values(silent), []
    for device, replicas in sharing.own_replicas:
        item = Values(silent)
        item.put(DEVICE, device, silent)
        item.put(OWN_REPLICAS, replicas, silent)
        items.append(item)
    values.put(STRATEGY, sharing.strategy, silent)
    values.put(REPLICAS, sharing.replicas, origin)
    if items:
        values.put(PER_DEVICE, tuple(items), silent)
    values.put(FAIL_MULTIPLE, sharing.fail_multiple, silent)
    values.put(SAME_DEVICE, sharing.same_device, silent)
    values.put(PREFERENCE, sharing.preference, silent)
    values.put(MEMORY_LIMIT, sharing.memory_limit, silent)
    values.put(THREADS, sharing.thread_percentage, silent)
    return values


def has_broken_sharing(own: Values) -> bool:
    """Whether a part of ``sharing`` has an error."""
    if SHARING not in own:
        return False
    return own[SHARING].broken or any(item.broken for item in own[SHARING][PER_DEVICE])


def check_sharing(rule: Rule, own: Values, problems: list[ConfigError]) -> None:
    """Report why devices cannot be shared or partitioned as the resource says."""
    if rule.sharing is not None and not has_broken_sharing(own):
        given = own[SHARING]
        if serves_nics(rule.selector):
            problem = "is for GPUs and their parts, but this resource may select NICs"
            problems.append(own.place(SHARING).error(problem, "remove it, or select GPUs with 'devices: {kind: gpu}'"))
            return
        _check_items(given, problems)
        if rule.sharing.strategy is SharingStrategy.MPS:
            _check_mps(rule, given, problems)
        else:
            _check_limits(given, problems)
        if rule.door is Doors.DRA:
            _check_claims(given, problems)
    if own[PARTITIONS] is PartitionsChoice.ON_DEMAND:
        _check_partitions(rule, own, problems)


def _check_items(given: Values, problems: list[ConfigError]) -> None:
    """Refuse an item to which an earlier one leaves no device."""
    patterns: list[str] = []
    for item in given[PER_DEVICE]:
        device = item[DEVICE]
        if device in patterns or "*" in patterns:
            problem = f"is {device}, whose devices an earlier item has"
            problems.append(item.place(DEVICE).error(problem, "remove one of the two, or put it before"))
        patterns.append(device)


def _check_mps(rule: Rule, given: Values, problems: list[ConfigError]) -> None:
    selected = rule.selector
    if selected.vendors != ("nvidia",) or selected.kinds != (DeviceKind.GPU,) or selected.mig_enabled:
        problem = (
            "is mps, which shares only GPUs of NVIDIA outside MIG mode, but this resource may select other devices"
        )
        fix = "select them with 'devices: {vendor: nvidia, kind: gpu}', or use timeSlicing"
        problems.append(given.place(STRATEGY).error(problem, fix))
    for values, field in ((given, REPLICAS), *((item, OWN_REPLICAS) for item in given[PER_DEVICE])):
        if values[field] > MOST_CLIENTS:
            problem = f"is {values[field]}, but MPS serves at most {MOST_CLIENTS} clients on a GPU"
            problems.append(values.place(field).error(problem, f"write at most {MOST_CLIENTS}, or use timeSlicing"))


def _check_limits(given: Values, problems: list[ConfigError]) -> None:
    fields: tuple[AnyField, ...] = (MEMORY_LIMIT, THREADS)
    for field in fields:
        if field in given:
            problem = "is a limit that only MPS enforces, but strategy is timeSlicing"
            problems.append(given.place(field).error(problem, "remove it, or set 'strategy: mps'"))


def _check_claims(given: Values, problems: list[ConfigError]) -> None:
    """Keys about the plugin door's choice of replicas: a claim says what it consumes, and the scheduler chooses."""
    fields: tuple[AnyField, ...] = (FAIL_MULTIPLE, SAME_DEVICE, PREFERENCE)
    for field in fields:
        if field in given:
            problem = "has no effect with door dra, where the scheduler chooses the devices of a claim"
            problems.append(given.place(field).error(problem, "remove it"))


def _check_partitions(rule: Rule, own: Values, problems: list[ConfigError]) -> None:
    place, selected = own.place(PARTITIONS), rule.selector
    if not rule.door.has(Door.DRA):
        problem = f"is onDemand, which only claims can ask for, but door is {rule.door}"
        problems.append(place.error(problem, "set 'door: dra' or 'door: both', or remove it"))
    divisible = check_divisible(rule, place, "is onDemand, which needs whole GPUs", problems)
    if divisible and selected.mig_enabled is not None:
        problem = "is onDemand, which changes the MIG mode of a GPU, but devices select by migEnabled"
        problems.append(place.error(problem, "remove migEnabled"))
    if rule.sharing is not None:
        problem = "is onDemand, but sharing shares the same GPUs"
        problems.append(place.error(problem, "remove one of the two, or give each its own resource"))
