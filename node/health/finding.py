"""Findings against a device at one moment, from every source, and which of them is the cause of its state. Pure.

``judged`` alone decides the cause: the event, the command line, the metrics, the taint and the health stream read it
from the verdict. The cause is the finding with the hardest recovery among those that are as bad as the worst. Between
equally hard ones the order of kinds decides, not time, so that a finding that comes and goes beside the cause is not
reported each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from node.health.signal import Trouble
from node.health.state import Health, HealthState, Recovery
from node.values import Value, quick, replace, value

_BADNESS = {HealthState.HEALTHY: 0, HealthState.DEGRADED: 1, HealthState.UNHEALTHY: 2, HealthState.UNKNOWN: 3}
"""Unknown comes first: while nothing is known of a device, no earlier fault may cost a pod."""
_HARDNESS = {
    Recovery.NONE: 0,
    Recovery.AUTOMATIC: 1,
    Recovery.RESET: 2,
    Recovery.REPLACE: 3,
    Recovery.PERSON: 4,
}
_ORDER = (
    Trouble.SILENT,
    Trouble.LOST,
    Trouble.PERSON,
    Trouble.UNBOUND,
    Trouble.RECOVERY,
    Trouble.XID,
    Trouble.ECC,
    Trouble.ROW_REMAP,
    Trouble.SRAM,
    Trouble.AER,
    Trouble.NODE,
    Trouble.CARRIER,
    Trouble.PORT,
    Trouble.SCAN,
    Trouble.FABRIC,
    Trouble.NVLINK,
    Trouble.PCIE_LINK,
    Trouble.THERMAL,
    Trouble.POWER,
    Trouble.MPS,
)
"""Decides the cause among equally bad troubles with equally hard recoveries."""
_PLACE = {kind: number for number, kind in enumerate(_ORDER)}
_MANIFOLD = frozenset({Trouble.XID, Trouble.SCAN})
"""Kinds of which a device can have several at once; all findings of any other kind are about one thing."""
_MOST_LISTED = 8


@value
class Finding(Value):
    """One thing against a device. ``until``: when it ends by itself, None if unknown.

    ``of``: the device whose trouble it is, empty for its own. ``gone``: the device is only shown because it was there.
    ``over``: the trouble is gone, and the finding lasts until a quiet time has passed.
    """

    state: HealthState
    kind: Trouble
    reason: str
    recovery: Recovery
    source: str
    since: float = 0.0
    flapping: bool = False
    until: float | None = None
    of: str = ""
    gone: bool = False
    over: bool = False

    def handed_down(self, whole: str, kind: str) -> Finding:
        """This finding for a part of the device; ``kind``: the kind of the whole."""
        return replace(self, reason=f"its {kind} {whole}: {self.reason}", of=whole)


@quick
@value
class Verdict(Value):
    """What follows from all findings: the health, without its time, and how it came about.

    ``may_evict``: the policy lets it evict, before eviction limits and delays. ``lasts``: the trouble behind that is
    still there. ``also``: the other reasons against the device, the hardest to end first.
    """

    health: Health
    source: str = ""
    flapping: bool = False
    until: float | None = None
    of: str = ""
    may_evict: bool = False
    lasts: bool = False
    also: tuple[str, ...] = ()


def judged(findings: Iterable[Finding], evicting: frozenset[Trouble]) -> Verdict:
    """The verdict on the findings, in any order: see the module. Healthy if there are none."""
    ordered = sorted(findings, key=_rank)
    if not ordered or ordered[0].state is HealthState.HEALTHY:
        return Verdict(Health(), ordered[0].source if ordered else "")
    first = ordered[0]
    alike = [finding for finding in ordered if finding.state is first.state]
    ends = [finding.until for finding in alike]
    sick = first.state is HealthState.UNHEALTHY
    return Verdict(
        Health(first.state, first.reason, recovery=first.recovery, cause=first.kind.value),
        first.source,
        any(finding.flapping for finding in alike),
        None if None in ends else max(end for end in ends if end is not None),
        first.of,
        sick and any(finding.kind in evicting for finding in alike),
        sick and any(finding.kind in evicting and not finding.over for finding in alike),
        tuple(_others(ordered)),
    )


def _others(ordered: list[Finding]) -> Iterator[str]:
    """The reasons of all but the first, each once."""
    named = {_thing(ordered[0])}
    for finding in ordered[1:]:
        if finding.state is not HealthState.HEALTHY and len(named) <= _MOST_LISTED and _thing(finding) not in named:
            named.add(_thing(finding))
            yield finding.reason


def _thing(finding: Finding) -> tuple[Trouble, str]:
    """Identifies what a finding is about; sources word the same trouble differently."""
    return finding.kind, finding.reason if finding.kind in _MANIFOLD or finding.of else ""


def _rank(finding: Finding) -> tuple[int, int, bool, int, bool, str, str]:
    # The last two only make the order independent of which came first.
    return (
        -_BADNESS[finding.state],
        -_HARDNESS[finding.recovery],
        not finding.gone,
        _PLACE[finding.kind],
        bool(finding.of),
        finding.source,
        finding.reason,
    )
