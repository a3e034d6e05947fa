"""Tests of the DRA door: sockets, registration, calls, health, hand-over."""
