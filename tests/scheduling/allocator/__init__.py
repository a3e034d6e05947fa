"""Tests of the structured allocator."""
