"""The rig on itself: clusters do not meet, nothing is left of one, nodes reach each other."""
