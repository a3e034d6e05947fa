"""The snapshot's devices as DRA devices."""
