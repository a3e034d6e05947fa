"""The sandbox: its cluster of one node, what it injects, and its second door."""
