"""How quickly what happens to a device is known at the kubelet and at the API server, and how often that is told."""
