"""Explain for people: reading a cluster, files or a snapshot, and showing the answer of ``scheduling.explain``."""
