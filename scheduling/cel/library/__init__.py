"""The functions of CEL in Kubernetes: one file for each library, one entry for each function."""
