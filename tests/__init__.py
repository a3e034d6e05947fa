"""Tests, a folder per subject."""
