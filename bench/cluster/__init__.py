"""The benchmark on a real Kubernetes: what a device costs a pod's start, and a soak that looks for leaks."""
