"""The contracts: the kubelet's gRPC APIs and the agent's own, as .proto files and committed stubs."""
