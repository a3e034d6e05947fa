"""The running agent: its parts, wired together and supervised."""
