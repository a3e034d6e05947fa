"""The DRA driver as the kubelet sees it: its sockets, registration, the calls it serves and the stream of health."""
