"""The benchmark: the agent beside a bare plugin, measured by one client in one run."""
