"""Tests of leaving the driver alone."""
