"""The stand-in for the API server, over its HTTP."""
