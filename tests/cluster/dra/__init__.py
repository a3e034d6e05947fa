"""The DRA door on a real Kubernetes: claims from the scheduler to the container."""
