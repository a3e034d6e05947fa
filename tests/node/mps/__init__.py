"""Tests of MPS: a stand-in for the control daemon as a real process."""
