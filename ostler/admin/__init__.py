"""What people and probes ask the agent: its own service and its pages."""
