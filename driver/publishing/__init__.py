"""Keeps the devices of the DRA door published as ResourceSlices."""
