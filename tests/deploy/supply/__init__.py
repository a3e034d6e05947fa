"""What a release says of its own parts: vulnerabilities that are known, the list of parts, the chart's package."""
