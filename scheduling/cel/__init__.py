"""CEL for devices: the Common Expression Language as Kubernetes offers it to selectors of devices."""
