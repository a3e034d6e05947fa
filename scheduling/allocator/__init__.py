"""The structured allocator: which devices a claim gets on a node, and why not. Pure."""
