"""AMD GPUs: what they are, how they are read, and how containers get them."""
