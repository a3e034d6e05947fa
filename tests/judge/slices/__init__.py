"""Kubernetes' own ResourceSlice controller as judge of ours."""
