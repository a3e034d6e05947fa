"""The structured allocator beside the real scheduler."""
