"""Intel GPUs: what they are and how containers get them."""
