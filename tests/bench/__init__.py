"""Tests of the benchmark's arithmetic and output; nothing here measures a time."""
