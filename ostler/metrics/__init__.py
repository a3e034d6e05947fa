"""The agent's metrics: counters, values of the moment of a scrape, and both in Prometheus' format."""
