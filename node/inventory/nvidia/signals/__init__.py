"""Health of NVIDIA GPUs between scans: events of the driver, and polls of what has no event."""
