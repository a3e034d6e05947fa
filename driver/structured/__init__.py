"""The structured allocator and its CEL: which devices a claim gets on a node, and why not. Pure."""
