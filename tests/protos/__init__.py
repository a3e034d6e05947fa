"""The contracts: names and numbers are the kubelet's."""
