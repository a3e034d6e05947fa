"""The section ``health``: the action for every trouble, and how long things take; and the policy made from it.

Its descriptions are a part of ``schema``, which says what they are for.
"""

from __future__ import annotations

from driver.names import TaintEffect
from node.health.policy import DEFAULT_ACTIONS, HealthPace, Policy
from node.health.signal import Trouble
from node.health.state import Action
from node.health.xids import Profile, XidTable
from ostler.config.errors import ConfigError
from ostler.config.scalars import Boolean, Choice, DurationType, Integer
from ostler.config.section import ConfigField, ConfigList, Section, Values, section


def health_policy(health: Values, everywhere: TaintEffect, problems: list[ConfigError]) -> Policy:
    """The section's policy; ``everywhere``: ``dra.taintEffect``, for troubles without an effect of their own."""
    quiet, flapping = health.section(QUIET), health.section(FLAPPING)
    actions = health.section(ACTIONS_SECTION)
    return Policy(
        _xids(health.section(XIDS), problems),
        tuple(
            (kind, given)
            for kind, field in ACTIONS.items()
            if field in actions and (given := actions[field]) is not None
        ),
        _evicting(health.section(EFFECTS_SECTION), everywhere),
        health[BRAKE],
        health[DRY_RUN],
        HealthPace(
            looks=quiet[LOOKS],
            apart=quiet[APART],
            warn=quiet[WARN],
            drain=quiet[DRAIN],
            flaps=flapping[TIMES],
            window=flapping[WINDOW],
            longest=flapping[LONGEST],
            evict_after=health[EVICT_AFTER],
        ),
    )


def _evicting(effects: Values, everywhere: TaintEffect) -> frozenset[Trouble]:
    def evicts(kind: Trouble) -> bool:
        field = EFFECTS[kind]
        given = effects[field]
        if field not in effects and everywhere is TaintEffect.NO_EXECUTE:
            given = everywhere
        return given is TaintEffect.NO_EXECUTE

    return frozenset(kind for kind in EFFECTS if evicts(kind))


def _xids(xids: Values, problems: list[ConfigError]) -> XidTable:
    overrides: dict[int, Action] = {}
    rows: tuple[Values, ...] = xids[XID_OVERRIDES]
    for row in rows:
        for number in row[XID_NUMBERS]:
            if number in overrides:
                place = row.place(XID_NUMBERS)
                problems.append(place.error(f"has {number}, which has an action already", "name each XID once"))
            overrides[number] = row[XID_ACTION]
    return XidTable(xids[PROFILE], xids[UNKNOWN], tuple(overrides.items()))


_PACE = HealthPace()
_DAY = "24h"


DRY_RUN = ConfigField(
    "dryRun", Boolean(), False, "Judge, report and count, but offer devices as scans find them; nothing evicts."
)
PROFILE = ConfigField(
    "profile",
    Choice(Profile),
    Profile.CATALOG,
    "catalog: NVIDIA's documented actions; compat: like NVIDIA's device plugin, six XIDs warn and all others except"
    " 154 withhold the GPU; strict: the catalog, with every action one step harsher.",
)
UNKNOWN: ConfigField[Action | None] = ConfigField(
    "unknown", Choice(Action), None, "Action for XIDs that the catalog lacks; absent: drain for catalog, else reset."
)
XID_NUMBERS = ConfigField("ids", ConfigList(Integer(1, 65535, 94), fewest=1), (), "Numbers of XIDs.", required=True)
XID_ACTION = ConfigField("action", Choice(Action), Action.IGNORE, "Action for these XIDs.", required=True)
XID_OVERRIDES = ConfigField(
    "overrides", ConfigList(Section(XID_NUMBERS, XID_ACTION), unique=False), (), "Actions for single XIDs."
)
XIDS = section(
    "xids",
    Section(PROFILE, UNKNOWN, XID_OVERRIDES),
    "Actions for errors that NVIDIA's driver reports (XIDs): ignore, warn (degraded), drain (unhealthy until its quiet"
    " time has passed), reset (unhealthy until it was reset), replace (unhealthy until a person clears it).",
)

_WHAT = {
    Trouble.XID: "an XID",
    Trouble.ECC: "uncorrectable memory errors",
    Trouble.ROW_REMAP: "a memory row that waits for a reset; one that could not be remapped means replace",
    Trouble.RECOVERY: "a recovery action that NVIDIA's driver asks for, or a GPU that it calls unavailable (absent: by"
    " the action)",
    Trouble.LOST: "a device that left the bus, or no longer answers its driver",
    Trouble.SRAM: "more uncorrectable errors of a GPU's SRAM than NVIDIA allows",
    Trouble.FABRIC: "unhealthy routes through the NVLink fabric; a GPU without a partition, or with less bandwidth,"
    " only warns",
    Trouble.NVLINK: "NVLinks with errors, or that went down",
    Trouble.THERMAL: "slowed down by its own temperature protection",
    Trouble.POWER: "slowed down by the power supply's brake",
    Trouble.CARRIER: "a link that is down, if a rule has linkHealth",
    Trouble.PORT: "an RDMA port that is not active, if a rule has linkHealth",
    Trouble.UNBOUND: "no driver is bound",
    Trouble.NODE: "a device node that does not exist",
    Trouble.AER: "uncorrectable PCIe errors; too many corrected ones only warn",
    Trouble.PCIE_LINK: "fewer PCIe lanes or less speed than the device should have",
    Trouble.MPS: "an MPS server that ended while pods shared the GPU",
    Trouble.SCAN: "any other fault that a scan finds",
    Trouble.PERSON: "an override that somebody set with 'ostler health set'",
}


def key_of(kind: Trouble) -> str:
    """The kind's name as a key: ``pcie-link`` is ``pcieLink``."""
    first, *rest = kind.value.split("-")
    return first + "".join(word.capitalize() for word in rest)


_SENTENCES = {kind: text[0].upper() + text[1:] + "." for kind, text in _WHAT.items()}
SCANNED = frozenset({Trouble.ROW_REMAP, Trouble.SRAM, Trouble.RECOVERY, Trouble.LOST, Trouble.UNBOUND, Trouble.NODE})
"""Troubles that scans find as well, with their own verdict."""
ACTIONS: dict[Trouble, ConfigField[Action | None]] = {
    kind: ConfigField(
        key_of(kind),
        # The example is an action that a scan does not overrule.
        Choice(Action, example=Action.RESET if kind in SCANNED else None),
        DEFAULT_ACTIONS.get(kind),
        _SENTENCES[kind],
    )
    for kind in (*DEFAULT_ACTIONS, Trouble.RECOVERY)
}
EFFECTS: dict[Trouble, ConfigField[TaintEffect]] = {
    kind: ConfigField(
        key_of(kind),
        Choice(TaintEffect),
        TaintEffect.NO_EXECUTE if kind in Policy().evicting else TaintEffect.NO_SCHEDULE,
        _SENTENCES[kind],
    )
    for kind in _WHAT
}

LOOKS = ConfigField("looks", Integer(1, 100, 5), _PACE.looks, "Polls in a row that must find a condition gone.")
APART = ConfigField("apart", DurationType("1s", "10m"), _PACE.apart, "Shortest time between two such polls.")
WARN = ConfigField("warn", DurationType("1s", _DAY), _PACE.warn, "Quiet time after an event with the action warn.")
DRAIN = ConfigField("drain", DurationType("1s", _DAY), _PACE.drain, "Quiet time after an event with the action drain.")
QUIET = section(
    "quiet", Section(LOOKS, APART, WARN, DRAIN), "How long a trouble must be gone until the device has recovered."
)

TIMES = ConfigField(
    "times", Integer(2, 100, 5), _PACE.flaps, "Number of times that a trouble must occur to count as flapping."
)
WINDOW = ConfigField("window", DurationType("10s", _DAY), _PACE.window, "Time within which it must return to count.")
LONGEST = ConfigField(
    "longest", DurationType("10s", _DAY), _PACE.longest, "Longest quiet time; each return doubles it, up to this."
)
FLAPPING = section("flapping", Section(TIMES, WINDOW, LONGEST), "Troubles that come and go.")

BRAKE = ConfigField(
    "brake",
    Boolean(),
    True,
    "If more than half of the devices of a kind become unhealthy within 60 s, none of them evicts until somebody runs"
    " 'ostler health release-eviction-limit'.",
)
EVICT_AFTER = ConfigField(
    "evictAfter",
    DurationType("0s", "1h"),
    _PACE.evict_after,
    "How long a device must be in such a state before it evicts.",
)
ACTIONS_SECTION = section(
    "actions",
    Section(*ACTIONS.values()),
    "Actions for other troubles. Scans also find rowRemap, sram, lost, unbound, node and recovery: a milder action than"
    " their verdict has no effect while they find the trouble.",
)
EFFECTS_SECTION = section(
    "effects",
    Section(*EFFECTS.values()),
    "Effect of the taint of an unhealthy device, by its trouble: NoExecute evicts the pods that have it. With"
    " dra.taintEffect NoExecute this is the default for all.",
)
HEALTH = section(
    "health",
    Section(DRY_RUN, XIDS, ACTIONS_SECTION, EFFECTS_SECTION, BRAKE, EVICT_AFTER, QUIET, FLAPPING),
    "How the health of devices is judged.",
)
