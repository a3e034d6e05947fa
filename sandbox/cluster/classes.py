"""The DeviceClasses that the sandbox has from the start: the simplest ones that select our driver's devices."""

from __future__ import annotations

from typing import Any

DRIVER = "ostler.dev"


def device_classes(driver: str = DRIVER) -> list[dict[str, Any]]:
    """One class for each kind of device."""
    return [_device_class(driver, kind) for kind in ("gpu", "mig", "nic", "rdma")]


def _device_class(driver: str, kind: str) -> dict[str, Any]:
    expression = f'device.driver == "{driver}" && device.attributes["{driver}"].type == "{kind}"'
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": f"{kind}.{driver}"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
