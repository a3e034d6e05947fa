"""Rules for configurations without resources: what the vendors' own plugins offer, and never NICs.

Only an administrator may give away a node's network, so NICs need a resource in the configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.inventory.model import DeviceKind
from node.inventory.nvidia.vendor import GPU_RESOURCE, MIG_RESOURCE, NVIDIA
from node.inventory.vendors import VENDORS
from node.rules import Rule, Selector
from node.values import Value, value
from ostler.config import option_fields, schema
from ostler.config.conflicts import check_together
from ostler.config.errors import ConfigError, Note, Origin
from ostler.config.options import Roots, edit_options
from ostler.config.resources import PlacedRule, check_name
from ostler.config.section import Values
from ostler.config.settings import MigStrategy

if TYPE_CHECKING:
    from ostler.config.nvidia_sharing import Share

NVIDIA_GPUS = Selector(kinds=(DeviceKind.GPU,), vendors=(NVIDIA.name,))


@value
class Rename(Value):
    """Devices with another name than the MIG strategy's: an item of NVIDIA's ``resources``."""

    kind: DeviceKind
    pattern: str
    resource: str
    origin: Origin
    name: Origin


def nvidia_rules(strategy: MigStrategy, defaults: Values, roots: Roots) -> tuple[Rule, ...]:
    """The rules of a MIG strategy if no resources are given, as in NVIDIA's device plugin."""
    plain = Selector(kinds=(DeviceKind.GPU,), vendors=(NVIDIA.name,), mig_enabled=False)
    migs = Selector(kinds=(DeviceKind.MIG,), vendors=(NVIDIA.name,))
    whole = Selector(kinds=(DeviceKind.MIG,), vendors=(NVIDIA.name,), whole_instances=True)
    named = {
        MigStrategy.NONE: ((GPU_RESOURCE, NVIDIA_GPUS),),
        MigStrategy.MIXED: ((GPU_RESOURCE, plain), (MIG_RESOURCE, whole)),
        MigStrategy.SINGLE: ((GPU_RESOURCE, plain), (GPU_RESOURCE, migs)),
    }
    uniform = strategy is MigStrategy.SINGLE
    return tuple(_rule(name, selected, defaults, roots, uniform=uniform) for name, selected in named[strategy])


def nvidia_resources(
    values: Values,
    renames: tuple[Rename, ...],
    shares: tuple[Share, ...],
    *,
    roots: Roots,
    problems: list[ConfigError],
    notes: list[Note],
) -> tuple[PlacedRule, ...]:
    """All rules of NVIDIA's devices when no resources are given: renamed ones, the strategy's, and what shares them."""
    defaults, nvidia = values.section(option_fields.DEFAULTS), values.section(schema.NVIDIA)
    strategy, place = nvidia[schema.MIG_STRATEGY], nvidia.place(schema.MIG_STRATEGY)
    renamed = renamed_rules(renames, strategy, defaults, roots, problems)
    check_together(renamed, problems, notes)
    placed = (*renamed, *(PlacedRule(rule, place, place) for rule in nvidia_rules(strategy, defaults, roots)))
    if not shares:
        return placed
    from ostler.config.nvidia_sharing import shared_rules  # only for files of NVIDIA's plugin

    placed = shared_rules(shares, placed, strategy, problems, notes)
    check_together(placed, problems, notes)
    return placed


def other_rules(defaults: Values, roots: Roots) -> tuple[Rule, ...]:
    """The rules that follow the plugins of all other vendors."""
    return tuple(
        _rule(each.name, Selector(kinds=each.kinds, vendors=(vendor.name,), drivers=each.drivers), defaults, roots)
        for vendor in VENDORS
        if vendor is not NVIDIA
        for each in vendor.resources
    )


def renamed_rules(
    renames: tuple[Rename, ...], strategy: MigStrategy, defaults: Values, roots: Roots, problems: list[ConfigError]
) -> tuple[PlacedRule, ...]:
    """Rules that come before the strategy's and take what they rename; none for MIG devices without a strategy."""
    placed = []
    for rename in renames:
        if rename.kind is DeviceKind.GPU:
            mig_enabled = None if strategy is MigStrategy.NONE else False
            selected = Selector((rename.kind,), (NVIDIA.name,), products=(rename.pattern,), mig_enabled=mig_enabled)
        elif strategy is MigStrategy.NONE:
            continue
        else:
            whole = strategy is MigStrategy.MIXED
            selected = Selector((rename.kind,), (NVIDIA.name,), profiles=(rename.pattern,), whole_instances=whole)
        rule = _rule(rename.resource, selected, defaults, roots, uniform=strategy is MigStrategy.SINGLE)
        if check_name(rule, rename.name, problems):
            placed.append(PlacedRule(rule, rename.origin, rename.name))
    return tuple(placed)


def _rule(resource: str, selected: Selector, defaults: Values, roots: Roots, *, uniform: bool = False) -> Rule:
    options = edit_options(Values(defaults.origin), defaults, roots, selected)
    return Rule(resource, selected, edits=options, uniform=uniform, hints=defaults[option_fields.HINTS])
