"""The resource.k8s.io objects: versions, quantities, labels and validation."""
