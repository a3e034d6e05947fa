"""The sandbox: its cluster of one node, what it injects, and its DRA door."""
