"""Tests with real uevents: umockdev's, and the kernel's own."""
