"""What speaks against a device at one moment, from whatever source, and which of several things is said first. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from node.health.signal import Trouble
from node.health.state import Health, HealthState, Recovery
from node.values import Value, replace, value

_BADNESS = {HealthState.HEALTHY: 0, HealthState.DEGRADED: 1, HealthState.UNHEALTHY: 2, HealthState.UNKNOWN: 3}
"""Unknown goes before everything: while nothing can be said of a device, nothing that was known may cost a pod."""
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
    Trouble.AER,
    Trouble.NODE,
    Trouble.CARRIER,
    Trouble.PORT,
    Trouble.SCAN,
    Trouble.NVLINK,
    Trouble.PCIE_LINK,
    Trouble.THERMAL,
    Trouble.POWER,
)
"""Which of equally bad troubles is named."""
_PLACE = {kind: number for number, kind in enumerate(_ORDER)}


@value
class Finding(Value):
    """One thing against a device. ``until``: when it ends by itself, None where that is not known.

    ``of``: the device whose trouble it is, empty for its own. ``gone``: the device is only shown because it was there.
    ``over``: it is not so any more, and held until it has been quiet.
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
        """The same for a part of the device; ``kind``: what the whole is, in a word."""
        return replace(self, reason=f"its {kind} {whole}: {self.reason}", of=whole)


@value
class Verdict(Value):
    """What follows from all findings: the health, without the time, and how it came about.

    ``may_evict``: the policy's word, before brakes and delays. ``lasts``: what it says that of is so at the moment.
    """

    health: Health
    source: str = ""
    flapping: bool = False
    until: float | None = None
    of: str = ""
    may_evict: bool = False
    lasts: bool = False


def judged(findings: Iterable[Finding], evicting: frozenset[Trouble]) -> Verdict:
    """The worst of the findings, with the hardest recovery among those that are as bad; healthy without any."""
    ordered = sorted(findings, key=_rank)
    if not ordered or ordered[0].state is HealthState.HEALTHY:
        return Verdict(Health(), ordered[0].source if ordered else "")
    first = ordered[0]
    alike = [finding for finding in ordered if finding.state is first.state]
    hardest = max(alike, key=lambda finding: _HARDNESS[finding.recovery])
    ends = [finding.until for finding in alike]
    sick = first.state is HealthState.UNHEALTHY
    return Verdict(
        Health(first.state, first.reason, recovery=hardest.recovery, cause=first.kind.value),
        first.source,
        any(finding.flapping for finding in alike),
        None if None in ends else max(end for end in ends if end is not None),
        first.of,
        sick and any(finding.kind in evicting for finding in alike),
        sick and any(finding.kind in evicting and not finding.over for finding in alike),
    )


def _rank(finding: Finding) -> tuple[int, bool, int, bool, str, str]:
    # The last two only make the order the same whatever came first.
    kind = _PLACE[finding.kind]
    return -_BADNESS[finding.state], not finding.gone, kind, bool(finding.of), finding.source, finding.reason
