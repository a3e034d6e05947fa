"""Tests of explain and snapshot."""
