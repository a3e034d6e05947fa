"""A node in a box: an embedded kubelet and recorded hardware, for trying and testing without a cluster."""
