"""What the DRA door shows, kept published as ResourceSlices."""
