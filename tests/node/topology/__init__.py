"""Distances, cells, places and what published machines say of them."""
