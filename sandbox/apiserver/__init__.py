"""A stand-in for the Kubernetes API server: the objects a driver, a scheduler and a kubelet speak about, over HTTP."""
