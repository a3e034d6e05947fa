"""Tests of live hardware: hints, polls, supervision."""
