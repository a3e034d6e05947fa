"""What the kernel's own words (links, uevents, files of /sys) mean for the health of a device. Pure."""
