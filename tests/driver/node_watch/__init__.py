"""The node's pods and their claims, over real HTTP against the API server's stand-in."""
