"""A running agent asked by people with grpcurl."""
