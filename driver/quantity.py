"""Quantities as Kubernetes writes and compares them."""
