"""How GetPreferredAllocation decides: what it does to a node over time, and how long a decision takes."""
