"""Health of devices: the state of each one, with its reason, its time and what ends it."""
