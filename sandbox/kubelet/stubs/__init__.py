"""Stand-ins for a device plugin and for a device manager, for people who test the other side."""
