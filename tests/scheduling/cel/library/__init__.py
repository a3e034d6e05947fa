"""Tests of CEL for devices."""
