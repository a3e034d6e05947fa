"""Noticing hardware that comes, goes or changes: hints to scan, never facts."""
