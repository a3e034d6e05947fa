"""NICs and RDMA adapters out of raw facts, and what is remembered of them."""
