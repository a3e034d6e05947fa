"""The image, built by the tests from a base made on this machine, and run."""
