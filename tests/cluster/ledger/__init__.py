"""One ledger on a real Kubernetes: the same devices at both doors."""
