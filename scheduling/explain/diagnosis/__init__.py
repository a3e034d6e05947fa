"""Why claims fit on nodes or do not. Pure."""
