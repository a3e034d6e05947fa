"""Rules that the API server applies to objects of resource.k8s.io."""
