"""The API server's rules for objects of resource.k8s.io/v1, as Kubernetes 1.36 judges them (see objects.py)."""
