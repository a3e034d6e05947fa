"""NVIDIA GPUs and MIG devices: NVML through the real binding, and devices out of what it says."""
