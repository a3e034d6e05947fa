"""``ostler doctor``: checks of a node from the node itself, each with a verdict, what was found, and a fix."""
