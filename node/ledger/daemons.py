"""Programs that are on a device and no users of it: a module of their own, because settings name them at the start."""

from __future__ import annotations

DAEMONS = (
    "nvidia-persistenced",
    "nvidia-cuda-mps-server",
    "nvidia-cuda-mps-control",
    "nv-hostengine",
    "dcgm-exporter",
    "nv-fabricmanager",
    "nvidia-imex",
)
"""NVIDIA's own, which are on a GPU that nobody uses; names as patterns with ``*``."""
