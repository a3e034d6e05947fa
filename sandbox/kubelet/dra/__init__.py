"""The DRA manager of the embedded kubelet: drivers, claims and the health of their devices."""
