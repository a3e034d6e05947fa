"""The embedded kubelet as a tool of its own."""
