"""``ostler doctor``: every check well and unwell, and the command itself."""
