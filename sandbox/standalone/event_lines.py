"""The embedded kubelet's events as lines for people and as plain data for programs. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sandbox.kubelet.events import (
    CheckpointFailed,
    DriverConnection,
    DriverHealth,
    HealthChanged,
    KubeletEvent,
    ListReceived,
    PluginCallFailed,
    PluginCallPending,
    PluginDeregistered,
    PluginRegistered,
    PodWarning,
    RegistrationFailed,
    RunOptionsConflict,
)

Json = dict[str, Any]

DETAILS = (ListReceived, DriverHealth)
"""Events that are shown only to who watches."""


def event_document(event: KubeletEvent) -> Json:
    """The event as plain data."""
    return {"event": type(event).__name__, **asdict(event)}


def event_line(event: KubeletEvent) -> str:
    """The event as one line."""
    match event:
        case PluginRegistered(name, socket, door):
            return f"{name} is registered by {_DOORS[door]}, socket {socket}"
        case RegistrationFailed(name, socket, door, message, fault):
            who = name or socket
            look = f"; {fault}" if fault is not None else ""
            return f"registration of {who} by {_DOORS[door]} failed: {message}{look}"
        case PluginDeregistered(name, socket, lost, reason):
            why = f": {reason}" if reason else ""
            devices = "; nothing serves it now" if lost else ""
            return f"{name} is disconnected, socket {socket}{why}{devices}"
        case PluginCallPending(fault):
            return f"waiting for {fault}"
        case PluginCallFailed(fault, error):
            return f"failed: {fault}; error: {error}"
        case CheckpointFailed():
            return str(event)
        case RunOptionsConflict(_, container, conflict):
            return f"container {container}: {conflict}"
        case ListReceived(name, number, healthy, unhealthy):
            return f"{name} sent list {number}: {healthy} healthy, {unhealthy} unhealthy"
        case HealthChanged(name, device, before, after):
            return f"{name}: device {device} {before} -> {after}"
        case DriverConnection(name, endpoint, connected):
            return f"driver {name} at {endpoint} is {'connected' if connected else 'disconnected'}"
        case DriverHealth(name, changed, ended):
            return f"driver {name}: health stream ended" if ended else f"driver {name}: health of {changed} devices"
        case PodWarning(uid, reason, message):
            return f"pod {uid}: {reason}: {message}"


_DOORS = {"register": "its Register call", "watcher": "plugins_registry"}
