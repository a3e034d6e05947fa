"""Which devices are preferred, against brute force and over time."""
