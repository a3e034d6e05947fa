"""NICs and RDMA adapters: devices made from raw facts, and the memory of those in pods."""
