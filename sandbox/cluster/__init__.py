"""A cluster of one node: what the control plane does for claims, on the API server stand-in."""
