"""Signs of the health of NVIDIA GPUs between scans: events of the driver, and what only getters tell."""
