"""Tests of the NVML source through the real binding, against a stub library."""
