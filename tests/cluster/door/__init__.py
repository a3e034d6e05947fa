"""The device plugin door on a real kubelet."""
