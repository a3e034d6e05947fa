"""What the API server says of this node, followed: its pods, the claims that they name, and its doors."""
