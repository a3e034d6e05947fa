"""The DRA door's figures: against a real API server, with a kubelet reduced to what is measured."""
