"""The container runtime's plugin interface (NRI): reports pod sandboxes to ostler before their containers start."""
