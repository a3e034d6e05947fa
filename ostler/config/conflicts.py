"""Rules compared with each other: colliding names, and rules that never get a device. Pure.

Whether a rule gets a device is decided exactly for the sorts of devices that a selector can have (kind, MIG mode, whole
instances). Patterns, ranges and lists count as covered only if that is evident; in doubt a rule passes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import TypeVar

from node.inventory.model import DeviceKind
from node.rules import PROFILE, Doors, FunctionRange, NicSelector, Rule, Selector, matches_pattern
from node.values import replace
from ostler.config.document import shown
from ostler.config.errors import ConfigError, Note, NoteKind
from ostler.config.resources import PlacedRule, differences

T = TypeVar("T")

_ANY_PROFILE = r"([1-9]c\.)?[1-9]g\.(?!.*shared)[a-z0-9.-]+"
"""A MIG profile in a name; ``.shared``, with which NVIDIA's plugin ends names of shared resources, is part of none."""


def check_together(rules: Sequence[PlacedRule], problems: list[ConfigError], notes: list[Note] | None = None) -> None:
    """Report problems between rules; ``rules`` in the order in which they are tried.

    ``notes`` gets what is valid but may surprise.
    """
    for number, later in enumerate(rules):
        for earlier in rules[:number]:
            _check_pair(earlier, later, problems, [] if notes is None else notes)
        takers = _takers(rules[:number], later)
        if takers:
            problem = f"never gets a device: {_have_all(takers)}"
            problems.append(
                later.origin.error(problem, "put it first, select fewer devices in the earlier one, or remove it")
            )


def reached(rules: Sequence[PlacedRule], notes: list[Note]) -> tuple[PlacedRule, ...]:
    """The rules that can get a device; each of the others is a note."""
    kept: list[PlacedRule] = []
    for later in rules:
        takers = _takers(kept, later)
        if takers:
            text = f"never gets a device in the plugin either: {_have_all(takers)}"
            notes.append(Note(NoteKind.IDLE, later.origin, text))
        else:
            kept.append(later)
    return tuple(kept)


def _have_all(takers: Sequence[str]) -> str:
    return f"{' and '.join(takers)} {'takes' if len(takers) == 1 else 'take'} them all first"


def _check_pair(earlier: PlacedRule, later: PlacedRule, problems: list[ConfigError], notes: list[Note]) -> None:
    """Names that collide must be one resource, whatever the doors: devices stay at a door until it releases them."""
    one, other = earlier.rule.resource, later.rule.resource
    if _meet(one, other):
        different = differences(earlier, later)
        # One profile may be shared differently from the others: its rule takes all its devices.
        if different == "sharing" and _leaves_none(earlier.rule, later.rule):
            return
        if different:
            problem = f"is {shown(other)}, which {earlier.label} offers as {shown(one)} with a different {different}"
            problems.append(later.name.error(problem, "give both the same options, or rename one"))
        elif {earlier.rule.door, later.rule.door} == {Doors.PLUGIN, Doors.DRA}:
            text = (
                f"is {shown(other)}, which {earlier.label} offers through the other door: pods that ask for it by name "
                "get devices of door plugin alone as long as the node has any"
            )
            notes.append(Note(NoteKind.REMARK, later.name, text))
    elif one.replace("/", "-") == other.replace("/", "-"):
        problem = f"is {shown(other)}, which gets the same file names as {shown(one)} of {earlier.label}"
        problems.append(later.name.error(problem, "rename one so that they differ in more than / and -"))


def _meet(one: str, other: str) -> bool:
    """Whether two names can be the same resource once their profiles are filled in."""
    return one == other or _filled(one, other) or _filled(other, one)


def _leaves_none(earlier: Rule, later: Rule) -> bool:
    """Whether the earlier rule takes every device whose profile would give the later rule the earlier one's name."""
    names = {
        profile: later.resource.replace(PROFILE, profile.replace("+", ".")) for profile in earlier.selector.profiles
    }
    profiles = tuple(profile for profile, name in names.items() if name == earlier.resource)
    if PROFILE not in later.resource or not profiles:
        return False
    left = replace(later.selector, profiles=profiles)
    return sorts(left) <= sorts(earlier.selector) and _takes_patterns(earlier.selector, left)


def _filled(template: str, name: str) -> bool:
    if PROFILE not in template or PROFILE in name:
        return False
    return re.fullmatch(_ANY_PROFILE.join(re.escape(part) for part in template.split(PROFILE)), name) is not None


def _takers(earlier: Sequence[PlacedRule], later: PlacedRule) -> list[str]:
    """The rules that together take every device of ``later``; none where it may get one."""
    left = sorts(later.rule.selector)
    takers = []
    for placed in earlier:
        if _takes_patterns(placed.rule.selector, later.rule.selector):
            taken = sorts(placed.rule.selector) & left
            if taken:
                takers.append(placed.label)
                left -= taken
    return takers if not left else []


def _takes_patterns(wide: Selector, narrow: Selector) -> bool:
    pairs = (
        (wide.products, narrow.products),
        (wide.profiles, narrow.profiles),
        (wide.uuids, narrow.uuids),
        (wide.pci_addresses, narrow.pci_addresses),
        (wide.names, narrow.names),
    )
    return (
        _holds(wide.vendors, narrow.vendors)
        and _holds(wide.drivers, narrow.drivers)
        and all(_takes(*pair) for pair in pairs)
        and (wide.nic is None or (narrow.nic is not None and _takes_nics(wide.nic, narrow.nic)))
    )


def _takes(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    if not wide:
        return True
    # A * of the narrow pattern is compared as an ordinary character: only a * of the wide ones matches it.
    return bool(narrow) and all(any(matches_pattern(some, text) for some in wide) for text in narrow)


def _holds(wide: tuple[T, ...], narrow: tuple[T, ...]) -> bool:
    """Whether a list of words takes all that another does; an empty one stands for any word."""
    return not wide or (bool(narrow) and set(wide) >= set(narrow))


def _takes_nics(wide: NicSelector, narrow: NicSelector) -> bool:
    return (
        _holds(wide.vendors, narrow.vendors)
        and _holds(wide.devices, narrow.devices)
        and _holds(wide.functions, narrow.functions)
        and _holds(wide.link_types, narrow.link_types)
        and _holds(wide.acpi_indexes, narrow.acpi_indexes)
        and _holds(wide.pkeys, narrow.pkeys)
        and (wide.rdma is None or wide.rdma is narrow.rdma)
        and _takes_functions(wide.interfaces, narrow.interfaces)
        and _takes_functions(wide.roots, narrow.roots)
    )


def _takes_functions(wide: tuple[FunctionRange, ...], narrow: tuple[FunctionRange, ...]) -> bool:
    """Whether every function that the narrow ranges name is in one of the wide ones, range by range."""
    if not wide:
        return True
    return bool(narrow) and all(
        any(
            some.root == one.root
            and (not some.numbers or (one.numbers and all(_within(part, some.numbers) for part in one.numbers)))
            for some in wide
        )
        for one in narrow
    )


def _within(part: tuple[int, int], ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= part[0] and part[1] <= high for low, high in ranges)


Sort = tuple[DeviceKind, bool]
"""A kind of device split once: GPUs by MIG mode, MIG devices by whether they fill their GPU instance.

Other kinds are not split: both of their sorts are the same devices.
"""

_SORTS: frozenset[Sort] = frozenset(product(DeviceKind, (True, False)))


def sorts(selected: Selector) -> frozenset[Sort]:
    """The sorts of devices that a selector can match, by everything but its patterns."""
    return frozenset(sort for sort in _SORTS if _can_match(selected, *sort))


def _can_match(selected: Selector, kind: DeviceKind, flag: bool) -> bool:
    if selected.kinds and kind not in selected.kinds:
        return False
    if kind is DeviceKind.GPU:
        mig_mode_fits = selected.mig_enabled is None or selected.mig_enabled is flag
        return mig_mode_fits and not selected.whole_instances and selected.nic is None
    if selected.mig_enabled is not None:
        return False
    if kind is DeviceKind.MIG:
        return (flag or not selected.whole_instances) and selected.nic is None
    if selected.whole_instances:
        return False
    if kind is DeviceKind.PARTITION:
        return selected.nic is None
    return not (selected.profiles or selected.uuids)
