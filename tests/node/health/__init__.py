"""The health of devices: tables, tracks, verdicts, eviction limits, and the keeper over time."""
