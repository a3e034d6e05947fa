"""The DeviceClasses that the sandbox has from the start: those that the chart makes, by the same expressions."""

from __future__ import annotations

from typing import Any

DRIVER = "ostler.dev"


def device_classes(driver: str = DRIVER) -> list[dict[str, Any]]:
    """One class for each sort of device."""
    own = f"device.attributes['{driver}']"
    asked = {name: f"{own}.type == '{name}'" for name in ("gpu", "mig", "partition")}
    asked["nic"] = f"{own}.type in ['nic', 'rdma']"
    asked["rdma"] = f"({own}.type == 'rdma' || {own}.?rdma.orValue(false))"
    return [_device_class(driver, name, expression) for name, expression in asked.items()]


def _device_class(driver: str, name: str, expression: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": f"{name}.{driver}"},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}' && {expression}"}}]},
    }
