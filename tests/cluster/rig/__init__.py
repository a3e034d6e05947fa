"""Brings a real Kubernetes up and down on this machine: processes, addresses, certificates, nodes, images."""
