"""The agent as a systemd service: the unit, and what puts it on a machine."""
