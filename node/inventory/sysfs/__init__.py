"""What the kernel shows in /sys, /dev and /proc, read as raw facts."""
