"""Follows what the API server knows about this node: its pods, the claims that they name, and its doors."""
