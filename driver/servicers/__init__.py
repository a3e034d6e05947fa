"""The gRPC services that the kubelet calls on the DRA socket."""
