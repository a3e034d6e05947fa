"""Tests of the resource API as the second door uses it."""
