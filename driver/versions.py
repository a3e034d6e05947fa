"""Conversion of resource.k8s.io objects between the API versions v1, v1beta2 and v1beta1."""
