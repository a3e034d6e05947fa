"""A node whose NICs have stand-ins, and pods that claim them."""

from __future__ import annotations

from tests.cluster.dra.conftest import claims, classes, run_driver, stage

__all__ = ["claims", "classes", "run_driver", "stage"]
