"""Tests of opaque parameters."""
