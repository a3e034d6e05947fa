"""The control daemons of NVIDIA's Multi-Process Service (MPS), one for each shared resource."""
