"""Claims on this node: prepared, recorded, released."""
