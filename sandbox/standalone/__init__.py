"""The embedded kubelet as a tool of its own: what ``ostler kubelet`` does."""
