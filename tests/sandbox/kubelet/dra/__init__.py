"""The DRA side of the embedded kubelet, over real sockets."""
