"""The figures of health, and what is promised of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.figures import Figure, median

PREFIX = "health_"
"""How the names of all of these figures begin."""
XID, CARRIER, UNBIND = "xid", "carrier", "unbind"
SIGNALS = (XID, CARRIER, UNBIND)
"""What is told to the agent as an event: by NVML, by rtnetlink, by a uevent."""
FLAPS = 1000

HEALTH_FIGURES = (
    Figure("health_to_list_s", at_most=0.05),
    Figure("health_xid_to_list_s", at_most=0.05),
    Figure("health_carrier_to_list_s", at_most=0.05),
    Figure("health_unbind_to_list_s", at_most=0.05),
    Figure("health_to_list_worst_s"),
    Figure("health_polled_to_list_s", at_most=10.0),
    Figure("health_healed_to_list_s"),
    Figure("health_lost_to_list_s", at_most=3.0),
    Figure("health_lost_with_xid_healed_s", at_most=15.0),
    Figure("health_lost_healed_s", at_most=15.0),
    Figure("health_to_taint_s", at_most=0.5),
    Figure("health_1000_flaps_lists", at_most=5),
    Figure("health_1000_flaps_slice_writes", at_most=5),
)


def to_list(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """From the seconds of every signal to the list at the kubelet: the slowest kind of signal is the figure."""
    figures = {f"{PREFIX}{kind}_to_list_s": median(seconds[kind]) for kind in SIGNALS}
    worst = max(each for kind in SIGNALS for each in seconds[kind])
    return {**figures, "health_to_list_s": max(figures.values()), "health_to_list_worst_s": worst}
