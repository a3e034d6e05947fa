"""Recorded nodes: raw facts as a file, replayed in the place of hardware."""
