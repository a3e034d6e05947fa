"""What the DRA door shows, published as ResourceSlices."""
