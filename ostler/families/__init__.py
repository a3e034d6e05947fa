"""The metric families, a module for each part of the agent that they tell of."""
