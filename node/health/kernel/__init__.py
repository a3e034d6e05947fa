"""What the kernel's reports (links, uevents, files of /sys) mean for the health of a device. Pure."""
