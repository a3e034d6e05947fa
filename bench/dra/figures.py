"""The figures of the DRA door and of the slice controller, and what is promised of them. Pure."""

from __future__ import annotations

from bench.figures import FLOOR, Figure

REFERENCE_WRITES = 79
"""Writes with which 10,000 devices, 128 a slice, can be published at best, and with which upstream's library does."""
DRA_FIGURES = (
    Figure("start_to_dra_registration_s", at_most=0.3),
    Figure("start_to_first_slice_s", at_most=0.6),
    Figure("deleted_slice_repair_s", at_most=1.0),
    Figure("prepare_p50_s", factor=1.5),
    Figure("prepare_p99_s", factor=1.5),
    Figure("unprepare_p50_s"),
    Figure("unprepare_p99_s", factor=1.0, beside="prepare_p50_s"),
    Figure("prepare_200_parallel_s"),
    Figure("prepare_199_beside_one_waiting_s"),
    Figure("rss_both_doors_bytes", at_most=60e6),
    Figure("slices_10000_devices_converge_s", at_most=3.0),
    Figure("slices_10000_devices_writes", at_most=REFERENCE_WRITES),
    Figure("slices_one_change_s", at_most=0.3),
    Figure("slices_one_change_writes", at_most=1),
)
FLOORS = (
    "start_to_dra_registration_s",
    "prepare_p50_s",
    "prepare_p99_s",
    "unprepare_p50_s",
    "unprepare_p99_s",
    "prepare_200_parallel_s",
    "rss_both_doors_bytes",
)
"""Figures that the bare driver has, too; its memory is that of one door."""
NAMES = frozenset({figure.name for figure in DRA_FIGURES} | {FLOOR + name for name in FLOORS})
"""Everything that this benchmark writes."""
