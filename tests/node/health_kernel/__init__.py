"""What the kernel tells of devices' health: pure rules, files, sweeps, and Looks on a loop."""
