"""Who may be using this node's devices, as the API server knows it: the node's pods and the claims that they name."""
