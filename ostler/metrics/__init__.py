"""The agent's metrics: what it counts, and a module of families for each part that they tell of."""
