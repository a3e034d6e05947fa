"""A thousand agents at one API server: what they ask for, and how they come back after it was away."""
