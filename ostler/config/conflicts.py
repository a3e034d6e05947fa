"""Rules judged against each other: names that meet, and rules that never get a device.

The second is decided exactly for kinds, MIG mode and whole instances, and by patterns as far as one pattern can be seen
to take all that another does; in doubt a rule is let pass. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from node.inventory.model import DeviceKind
from node.rules import PROFILE, Selector, matches_pattern
from ostler.config.document import shown
from ostler.config.errors import ConfigError
from ostler.config.resources import PlacedRule, differences
from ostler.config.schema import Vendor

Sort = tuple[DeviceKind, bool]
"""A kind of device split once: GPUs by MIG mode, MIG devices by whether they fill their GPU instance."""

_SORTS: frozenset[Sort] = frozenset(product(DeviceKind, (True, False)))
_ANY_PROFILE = r"([1-9]c\.)?[1-9]g\.[a-z0-9.-]+"


def check_together(rules: Sequence[PlacedRule], problems: list[ConfigError]) -> None:
    """Report what only shows when the rules are seen together; ``rules`` in the order in which they are tried."""
    for number, later in enumerate(rules):
        for earlier in rules[:number]:
            _check_pair(earlier, later, problems)
        _check_reached(rules[:number], later, problems)


def _check_pair(earlier: PlacedRule, later: PlacedRule, problems: list[ConfigError]) -> None:
    one, other = earlier.rule.resource, later.rule.resource
    if _meet(one, other):
        different = differences(earlier.rule, later.rule)
        if different:
            problem = f"is {shown(other)}, which {earlier.label} offers as {shown(one)} with a different {different}"
            problems.append(later.name.error(problem, "give both the same options, or one another name"))
    elif one.replace("/", "-") == other.replace("/", "-"):
        problem = f"is {shown(other)}, which gets the same file names as {shown(one)} of {earlier.label}"
        problems.append(later.name.error(problem, "change one of the names in more than / and -"))


def _meet(one: str, other: str) -> bool:
    """Whether two names, with profiles filled in, can be the same resource."""
    return one == other or _filled(one, other) or _filled(other, one)


def _filled(template: str, name: str) -> bool:
    if PROFILE not in template or PROFILE in name:
        return False
    return re.fullmatch(_ANY_PROFILE.join(re.escape(part) for part in template.split(PROFILE)), name) is not None


def _check_reached(earlier: Sequence[PlacedRule], later: PlacedRule, problems: list[ConfigError]) -> None:
    left = sorts(later.rule.selector)
    takers = []
    for placed in earlier:
        if _takes_patterns(placed.rule.selector, later.rule.selector):
            taken = sorts(placed.rule.selector) & left
            if taken:
                takers.append(placed.label)
                left -= taken
    if takers and not left:
        problem = f"never gets a device: {' and '.join(takers)} {'has' if len(takers) == 1 else 'have'} them all before"
        problems.append(later.origin.error(problem, "put it before, select less there, or remove it"))


def sorts(selected: Selector) -> frozenset[Sort]:
    """The sorts of devices that a selector can match, by everything but its patterns."""
    return frozenset(sort for sort in _SORTS if _can_match(selected, *sort))


def _can_match(selected: Selector, kind: DeviceKind, flag: bool) -> bool:
    if selected.kinds and kind not in selected.kinds:
        return False
    if kind is DeviceKind.GPU:
        mig_mode_fits = selected.mig_enabled is None or selected.mig_enabled is flag
        return mig_mode_fits and not selected.profiles and not selected.whole_instances
    if kind is not DeviceKind.MIG and (selected.profiles or selected.whole_instances):
        return False
    return (flag or not selected.whole_instances) and selected.mig_enabled is None


def _takes_patterns(wide: Selector, narrow: Selector) -> bool:
    pairs = (
        (wide.products, narrow.products),
        (wide.profiles, narrow.profiles),
        (wide.uuids, narrow.uuids),
        (wide.pci_addresses, narrow.pci_addresses),
        (wide.names, narrow.names),
    )
    vendors = set(wide.vendors) or set(Vendor)
    return vendors >= (set(narrow.vendors) or set(Vendor)) and all(_takes(*pair) for pair in pairs)


def _takes(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    if not wide:
        return True
    # A * of the narrow pattern is held against the wide ones as an ordinary character: only a * takes it.
    return bool(narrow) and all(any(matches_pattern(some, text) for some in wide) for text in narrow)
