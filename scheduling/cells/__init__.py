"""Cells: whole islands of devices for gangs, guaranteed to virtual clusters."""
