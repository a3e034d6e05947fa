"""Tests of the API server's transport, against real HTTP(S) servers."""
