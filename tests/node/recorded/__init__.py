"""Tests of recorded nodes: the file, its source, anonymizing, and the shipped nodes."""
