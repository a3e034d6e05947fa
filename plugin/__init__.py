"""Door one: the kubelet's device plugin API."""
