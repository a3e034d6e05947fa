"""Sockets, locks, watched folders and gRPC endpoints."""
