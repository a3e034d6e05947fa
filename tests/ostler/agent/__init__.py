"""The agent as a process of its own."""
