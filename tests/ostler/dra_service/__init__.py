"""The DRA door as the agent wires it, with the plugin door beside it, on the API server's stand-in."""
