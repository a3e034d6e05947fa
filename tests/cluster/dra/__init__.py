"""The second door on a real Kubernetes: claims from the scheduler to the container."""
