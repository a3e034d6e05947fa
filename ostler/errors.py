"""Faults of the process itself."""

from __future__ import annotations


class ReloadFailed(Exception):
    """The configuration could not be read again; the text names every problem."""
