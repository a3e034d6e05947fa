"""Captions out of the devices that the agent lists."""

from __future__ import annotations

from collections.abc import Iterable

from ostler.drawing.scene import Caption
from protos.agent.v1alpha1 import agent_pb2


def captions_of(devices: Iterable[agent_pb2.Device]) -> dict[str, Caption]:
    """Captions by device name."""
    return {device.name: _gpu(device) if device.kind == "gpu" else _nic(device) for device in devices}


def _gpu(device: agent_pb2.Device) -> Caption:
    texts = {item.name: item.string_value for item in device.attributes if item.HasField("string_value")}
    well = device.health.state == "healthy" if device.health.state else None
    return Caption(
        title=texts.get("productName", "").removeprefix("NVIDIA ").removeprefix("AMD "),
        state="" if well else device.health.state,
        well=well,
        remark=texts.get("profile", ""),
        host_use=device.host_use,
        vendor=device.vendor,
    )


def _nic(device: agent_pb2.Device) -> Caption:
    texts = {item.name: item.string_value for item in device.attributes if item.HasField("string_value")}
    numbers = {item.name: item.int_value for item in device.attributes if item.HasField("int_value")}
    flags = {item.name: item.bool_value for item in device.attributes if item.HasField("bool_value")}
    names = [name for name in (texts.get("rdmaDevice", ""), texts.get("ifName", "")) if name]
    up = flags.get("linkUp")
    speed = _speed(numbers) if up else ""
    virtual = numbers.get("sriovVfs", 0)
    state = "" if up is None else f"up {speed}".strip() if up else "down"
    ill = device.health.state not in ("", "healthy")
    return Caption(
        title=" ".join(names) or texts.get("driver", ""),
        state=device.health.state if ill else state,
        # A device that is ill has no link worth telling of.
        well=None if ill else up,
        remark=f"{virtual} VFs" if virtual > 1 else "1 VF" if virtual else "",
        host_use=device.host_use,
        vendor=device.vendor,
    )


def _speed(numbers: dict[str, int]) -> str:
    """The speed in a few characters: ``400G``, ``2.5G``, ``100M``."""
    megabits = numbers.get("linkSpeedMbps") or numbers.get("rdmaRateGbps", 0) * 1000
    if megabits < 1000:
        return f"{megabits}M" if megabits else ""
    return f"{megabits / 1000:g}G"
