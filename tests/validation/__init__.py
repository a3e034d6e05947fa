"""Tests of the object rules of resource.k8s.io."""
