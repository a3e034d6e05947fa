"""The Helm chart and the manifests made from it, rendered by the real Helm."""
