"""A cluster's objects as one file, reduced and, on demand, under other names."""
