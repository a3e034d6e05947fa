"""Reads what the kernel shows in /sys, /dev and /proc as raw facts."""
