"""The policy of health out of the section ``health``, and the checks that one key alone cannot have."""

from __future__ import annotations

from driver.names import TaintEffect
from node.health.policy import HealthPace, Policy
from node.health.signal import Trouble
from node.health.state import Action
from node.health.xids import XidTable
from ostler.config import health_fields as fields
from ostler.config.errors import ConfigError
from ostler.config.section import Values


def health_policy(health: Values, everywhere: TaintEffect, problems: list[ConfigError]) -> Policy:
    """What is done about which trouble; ``everywhere``: the effect of ``dra.taintEffect``, for what says nothing."""
    quiet, flapping = health.section(fields.QUIET), health.section(fields.FLAPPING)
    actions = health.section(fields.ACTIONS_SECTION)
    return Policy(
        _xids(health.section(fields.XIDS), problems),
        tuple(
            (kind, given)
            for kind, field in fields.ACTIONS.items()
            if field in actions and (given := actions[field]) is not None
        ),
        _evicting(health.section(fields.EFFECTS_SECTION), everywhere),
        health[fields.BRAKE],
        health[fields.DRY_RUN],
        HealthPace(
            looks=quiet[fields.LOOKS],
            apart=quiet[fields.APART],
            warn=quiet[fields.WARN],
            drain=quiet[fields.DRAIN],
            flaps=flapping[fields.TIMES],
            window=flapping[fields.WINDOW],
            longest=flapping[fields.LONGEST],
            evict_after=health[fields.EVICT_AFTER],
        ),
    )


def _evicting(effects: Values, everywhere: TaintEffect) -> frozenset[Trouble]:
    def evicts(kind: Trouble) -> bool:
        field = fields.EFFECTS[kind]
        given = effects[field]
        if field not in effects and everywhere is TaintEffect.NO_EXECUTE:
            given = everywhere
        return given is TaintEffect.NO_EXECUTE

    return frozenset(kind for kind in fields.EFFECTS if evicts(kind))


def _xids(xids: Values, problems: list[ConfigError]) -> XidTable:
    overrides: dict[int, Action] = {}
    rows: tuple[Values, ...] = xids[fields.XID_OVERRIDES]
    for row in rows:
        for number in row[fields.XID_NUMBERS]:
            if number in overrides:
                place = row.place(fields.XID_NUMBERS)
                problems.append(place.error(f"has {number}, which has an action already", "name each XID once"))
            overrides[number] = row[fields.XID_ACTION]
    return XidTable(xids[fields.PROFILE], xids[fields.UNKNOWN], tuple(overrides.items()))
