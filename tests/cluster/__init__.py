"""A real Kubernetes on this machine, and what is tested on it; see README.md."""
