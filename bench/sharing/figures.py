"""The figures of shares and partitions, and what is promised of them. Pure."""

from __future__ import annotations

from bench.figures import Figure

PREFIX = "sharing_"
"""How the names of all of these figures begin."""
ALLOCATE, PREPARE = 1.1, 1.2
"""How much longer than with a whole GPU a call may take."""
MAKING = 0.020
"""Seconds that a partition may take to make beyond the driver's own calls."""


def _beside_whole(call: str, what: str, factor: float) -> tuple[Figure, ...]:
    return tuple(
        Figure(f"{PREFIX}{call}_{what}_{part}_s", factor=factor, against=f"{PREFIX}{call}_whole_{part}_s")
        for part in ("p50", "p99")
    )


def _beside_nvml(call: str, above: float | None = None) -> Figure:
    return Figure(f"{PREFIX}{call}_s", above=above, against=f"{PREFIX}{call}_nvml_s")


SHARING_FIGURES = (
    *_beside_whole("allocate", "share", ALLOCATE),
    *_beside_whole("prepare", "share", PREPARE),
    *_beside_whole("prepare", "partition", PREPARE),
    _beside_nvml("make_partition", MAKING),
    _beside_nvml("make_first_partition", MAKING),
    _beside_nvml("remove_partition"),
    _beside_nvml("leave_mig_mode"),
    Figure(f"{PREFIX}200_pods_fill_s"),
    Figure(f"{PREFIX}200_pods_cpu_s"),
    Figure(f"{PREFIX}200_pods_release_cpu_s"),
    Figure(f"{PREFIX}rss_bytes"),
    Figure(f"{PREFIX}rss_growth_200_pods_bytes"),
)
"""The third column has the same of a whole GPU, or the time that the driver's own calls took."""
