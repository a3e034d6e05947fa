"""Stubs; see the .proto file beside them."""
