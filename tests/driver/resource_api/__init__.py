"""Tests of the resource API as the DRA door uses it."""
