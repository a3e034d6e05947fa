"""The scheduler extender beside the real scheduler."""
