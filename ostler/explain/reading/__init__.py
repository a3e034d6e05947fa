"""What explain looks at, from a live cluster or from files."""
