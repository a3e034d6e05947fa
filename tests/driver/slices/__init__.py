"""The ResourceSlice controller: its parts, and what the reference controller did in the same cases."""
