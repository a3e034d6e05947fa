"""Interfaces that move into pods, on a real container runtime."""
