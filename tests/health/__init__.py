"""The health of devices: tables, tracks, verdicts, brakes, and the keeper over time."""
