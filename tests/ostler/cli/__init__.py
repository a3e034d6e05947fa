"""The command line: what it prints, and what it says when something is wrong."""
