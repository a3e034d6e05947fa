"""Tests of the conversion between versions of resource.k8s.io."""
