"""Makes rules from the resources of a configuration, and checks them.

Each rule is checked alone (name, options, a selection that nothing can match), then all of them together (two rules of
one resource with different options, a rule that never gets a device because earlier ones take them all). Sections with
problems are not checked further: those problems are reported.
"""

from __future__ import annotations

import re
from dataclasses import fields

from node.edits.options import EditOptions
from node.inventory.model import NIC_KINDS, DeviceKind
from node.rules import PROFILE, Rule, Selector, explain_resource_name
from node.values import Value, value
from ostler.config import device_fields, option_fields, schema
from ostler.config.document import clipped, shown
from ostler.config.errors import ConfigError, Origin
from ostler.config.mig import MIG, changes_mode, check_mig, layout_of
from ostler.config.option_fields import NamedInUse
from ostler.config.options import Roots, check_options, edit_options, pick
from ostler.config.section import AnyField, Values
from ostler.config.selection import check_selection, selector, serves_nics
from ostler.config.sharing import PARTITIONS, PartitionsChoice, check_sharing, has_broken_sharing, sharing_of

_OF_DEVICES: dict[str, AnyField] = {"rdma": option_fields.RDMA_DEVICES, "vhost_net": option_fields.VHOST_NET}
"""Options that each device of a resource may have of its own, and their keys."""

LONGEST_PROFILE = "1c.7g.288gb+me.all"
"""As long as a MIG profile gets: a part of a compute instance, three digits of memory, all media engines."""


@value
class PlacedRule(Value):
    """A rule and its place; ``label`` names it in messages about others.

    ``stated``: options that the resource itself gives and that are each device's own, so that another resource of the
    same name may say otherwise. A difference that comes from a default or from ``devices`` is mostly an oversight.
    ``shared``: what made it shared, in a file of NVIDIA's.
    """

    rule: Rule
    origin: Origin
    name: Origin
    stated: frozenset[str] = frozenset()
    shared: Origin | None = None

    @property
    def label(self) -> str:
        """``resources[0] (line 5)``."""
        return f"{self.origin.key} (line {self.origin.line})"


def read_resources(
    resources: tuple[Values, ...], defaults: Values, roots: Roots, problems: list[ConfigError]
) -> tuple[PlacedRule, ...]:
    """The rules of the ``resources`` list that could be read, each checked alone."""
    placed = []
    for values in resources:
        devices = values.section(device_fields.DEVICES)
        selected = selector(devices)
        options = edit_options(values, defaults, roots, selected)
        if not devices.broken:
            check_options(options, values, defaults, selected, problems)
        name = values.place(schema.RESOURCE_NAME)
        rule = Rule(
            values[schema.RESOURCE_NAME],
            selected,
            values[schema.DOOR],
            values[schema.IDS],
            edits=options,
            uniform=values[schema.UNIFORM],
            link_health=serves_nics(selected) and pick(option_fields.LINK_HEALTH, values, defaults),
            hints=pick(option_fields.HINTS, values, defaults),
            by_name=not serves_nics(selected) or pick(option_fields.NAMED_IN_USE, values, defaults) is NamedInUse.OFFER,
            sharing=sharing_of(values),
            partitions=values[PARTITIONS] is PartitionsChoice.ON_DEMAND,
            layout=layout_of(values),
            changes_mode=changes_mode(values),
            moves_interface=values[option_fields.MOVE_INTERFACE],
        )
        named = False
        if not devices.broken:
            check_sharing(rule, values, problems)
            check_mig(rule, values, problems)
            check_selection(rule.selector, devices, problems)
            named = schema.RESOURCE_NAME in values and check_name(rule, name, problems)
        if named and not (values.broken or values.section(option_fields.IMEX).broken or _has_broken_parts(values)):
            stated = frozenset(option for option, field in _OF_DEVICES.items() if field in values)
            placed.append(PlacedRule(rule, values.origin, name, stated))
    return tuple(placed)


def _has_broken_parts(own: Values) -> bool:
    return has_broken_sharing(own) or (MIG in own and own[MIG].broken)


def check_name(rule: Rule, place: Origin, problems: list[ConfigError]) -> bool:
    """Whether a kubelet takes the name, with the longest profile filled in where it has a place for it.

    Reports why when it does not.
    """
    for placeholder in re.findall(r"\{[^}]*\}?", rule.resource):
        if placeholder != PROFILE:
            problems.append(place.error(f"contains {shown(placeholder)}", f"the only placeholder is {PROFILE}"))
            return False
    parts = (DeviceKind.MIG, DeviceKind.PARTITION)
    only_parts = bool(rule.selector.kinds) and all(kind in parts for kind in rule.selector.kinds)
    profiled = only_parts or rule.selector.profiles or rule.selector.whole_instances
    if PROFILE in rule.resource and not profiled:
        fix = "select MIG devices alone with 'devices: {kind: mig}', or write the name out"
        problems.append(place.error(f"contains {PROFILE}, which {_whole(rule)} do not have", fix))
        return False
    profile = _longest_profile(rule.selector)
    name = rule.resource.replace(PROFILE, profile.replace("+", "."))
    reason = explain_resource_name(name)
    if reason is not None:
        problem, _, fix = reason.removeprefix(f"resource name {name!r} ").partition("; ")
        filled = f" with the profile {clipped(profile)}" if PROFILE in rule.resource else ""
        problems.append(place.error(f"is {shown(rule.resource)} and{filled} {problem}", fix))
    return reason is None


def _whole(rule: Rule) -> str:
    return "NICs" if rule.selector.kinds and all(kind in NIC_KINDS for kind in rule.selector.kinds) else "whole GPUs"


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
    "rdma": "rdmaDevices",
    "vhost_net": "vhostNet",
}


def differences(placed: PlacedRule, later: PlacedRule) -> str:
    """The keys in which two rules of one resource differ and may not, empty when there are none."""
    one, other = placed.rule, later.rule
    pairs = (
        ("ids", one.ids, other.ids),
        ("linkHealth", one.link_health, other.link_health),
        ("topologyHints", one.hints, other.hints),
        ("uniform", one.uniform, other.uniform),
    )
    keys = [key for key, a, b in pairs if a is not b]
    keys.extend(["sharing"] if one.sharing != other.sharing else [])
    names = [field.name for field in fields(EditOptions) if field.name not in placed.stated & later.stated]
    keys.extend(
        _OPTION_KEYS.get(name, name) for name in names if getattr(one.edits, name) != getattr(other.edits, name)
    )
    return ", ".join(keys)
