"""Shares and partitions beside whole GPUs, on one agent."""
