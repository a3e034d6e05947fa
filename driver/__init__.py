"""Door two: DRA. What a scheduler knows of claims and devices, and (to come) the node driver."""
