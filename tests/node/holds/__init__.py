"""What the kubelet says of devices, what follows from it, and what is left on devices that are free."""
