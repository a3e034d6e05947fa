"""The agent's own service, its pages for probes, and the answers to both."""
