"""Which devices are near each other: distances, cells, and the scores that placement follows."""
