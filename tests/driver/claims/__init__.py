"""Tests of preparing, recording and releasing claims."""
