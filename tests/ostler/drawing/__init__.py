"""Pictures of a topology."""
