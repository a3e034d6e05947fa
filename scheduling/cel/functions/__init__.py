"""The functions of CEL in Kubernetes, by library; `registry` says what an implementation is."""
