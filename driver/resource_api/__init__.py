"""The resource API of whatever version the server has: lists, reads and writes of slices and claims."""
