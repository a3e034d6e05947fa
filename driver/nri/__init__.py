"""The container runtime's plugin interface (NRI): ostler hears of pod sandboxes before their containers start."""
