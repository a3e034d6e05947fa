"""Tests of finding shared libraries."""
