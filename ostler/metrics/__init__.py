"""The agent's metrics: counters, values read at a scrape, and both in Prometheus' format."""
