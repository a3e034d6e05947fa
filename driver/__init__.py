"""Door two: DRA. Claims, slices, devices and registration of the node driver."""
