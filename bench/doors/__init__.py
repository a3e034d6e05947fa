"""The benchmark of both doors on a real Kubernetes: storms of pods and claims, and what a conflict costs."""
