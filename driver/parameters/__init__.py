"""Opaque configuration of claims and classes."""
