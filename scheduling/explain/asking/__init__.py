"""What is asked about: a pod or claims, and the nodes that come into question."""
