"""The Kubernetes API server's transport: how it is found, who we are to it, requests with dict bodies, events."""
