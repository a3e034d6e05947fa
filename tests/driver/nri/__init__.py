"""The connection to the container runtime."""
