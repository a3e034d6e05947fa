"""Tests of what explain reads and shows."""
