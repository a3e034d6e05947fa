"""The figures of many agents at one API server, and what is promised of them. Pure."""

from __future__ import annotations

from bench.figures import FLOOR, Figure

PREFIX = "scale_"
"""How the names of all of these figures begin; those of the helper library have ``floor_`` before it."""
AT_MOST = 2.0
"""An agent sends at most so many times the requests of the helper library for the same change."""
CHANGES = ("publish", "taint", "change", "prepare", "restart", "wipe", "reconnect")
"""What happens to one node, of which the requests are counted."""
SPREAD = 30.0
"""Seconds over which the agents of a cluster come back, at least."""

SCALE_FIGURES = (
    Figure(f"{PREFIX}nodes"),
    *(Figure(f"{PREFIX}{change}_requests", factor=AT_MOST) for change in CHANGES),
    Figure(f"{PREFIX}start_requests_per_node"),
    Figure(f"{PREFIX}watches_per_node"),
    Figure(f"{PREFIX}connections_per_node"),
    Figure(f"{PREFIX}idle_requests_per_node_minute", at_most=0.6),
    Figure(f"{PREFIX}idle_node_minute_bytes"),
    Figure(f"{PREFIX}apiserver_node_rss_bytes"),
    Figure(f"{PREFIX}away_attempts_per_node_minute"),
    Figure(f"{PREFIX}back_requests_per_node"),
    Figure(f"{PREFIX}back_spread_s"),
    Figure(f"{PREFIX}back_busiest_second_per_node"),
    Figure(f"{PREFIX}back_slices_right_s", at_most=60.0),
    Figure(f"{PREFIX}wiped_slices_right_s", at_most=60.0),
    Figure(f"{PREFIX}wiped_requests_per_node", factor=AT_MOST, against=f"{FLOOR}{PREFIX}wipe_requests"),
    Figure(f"{PREFIX}claims"),
    Figure(f"{PREFIX}claim_requests", factor=AT_MOST, against=f"{FLOOR}{PREFIX}prepare_requests"),
    Figure(f"{PREFIX}claims_prepared_s"),
)
