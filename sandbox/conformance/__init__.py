"""Conformance of device plugins and DRA drivers: runs one, drives every rule it must follow, and says what it saw."""
