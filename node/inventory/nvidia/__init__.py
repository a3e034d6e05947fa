"""NVIDIA GPUs and MIG devices: NVML through the real binding, and the devices made from its facts."""
