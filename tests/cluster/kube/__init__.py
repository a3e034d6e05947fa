"""What the agent says to a real API server."""
