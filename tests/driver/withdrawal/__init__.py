"""Devices that leave the DRA door."""
