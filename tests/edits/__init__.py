"""Tests of container edits."""
