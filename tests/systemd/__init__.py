"""The agent as a systemd service: the unit, the installation, what systemd is told."""
