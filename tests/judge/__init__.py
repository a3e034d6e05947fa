"""Kubernetes' own allocator and CEL as a judge of ours, and generators of cases for both."""
