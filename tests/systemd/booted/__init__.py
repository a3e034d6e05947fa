"""The installed service on a machine that systemd runs, in a container of its own."""
