"""Tests of CDI specs and of the folder they are written to."""
