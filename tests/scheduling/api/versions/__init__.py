"""Conversion between versions of resource.k8s.io."""
