"""Container edits: what a container gets with its devices, as plain values, per vendor."""
