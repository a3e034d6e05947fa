"""The object rules, against a real API server's verdicts."""
