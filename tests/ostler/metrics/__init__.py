"""Metrics, their table, and the alerts on them."""
