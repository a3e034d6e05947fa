"""Pools for people: where they come from, and how they are shown."""
