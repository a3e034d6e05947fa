"""How many pods fit a cluster: each placed in turn on what the earlier ones left."""
