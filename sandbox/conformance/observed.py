"""A program as the observing kubelet has seen it: its registrations, and its sockets in the registry."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.conformance.plugin_client import PluginClient
from sandbox.kubelet.plugin_watcher import Stamp

ObservedDoor = Literal["register", "watcher"]


@dataclass(slots=True, eq=False)
class ObservedRegistration:
    """One registration, and the connection that the kubelet made by it.

    ``endpoint`` and ``versions`` are the plugin's words. ``announced``: the options of the Register call.
    ``pending_problem``: why the plugin could not be reached while its Register call was pending; empty if it could.
    ``notify_problem``: how NotifyRegistrationStatus failed. ``client`` is None for a driver, and for a plugin that
    could not be reached (``problem``).
    """

    number: int
    resource: str
    door: ObservedDoor
    type: str
    is_device_plugin: bool
    versions: tuple[str, ...]
    endpoint: str
    socket: str
    path: str = ""
    announced: api_pb2.DevicePluginOptions | None = None
    options: api_pb2.DevicePluginOptions | None = None
    pending_problem: str = ""
    notify_problem: str = ""
    problem: str = ""
    hangs: bool = False
    """Whether the plugin took the call for its options and did not answer in time."""
    client: PluginClient | None = None
    first_message: api_pb2.ListAndWatchResponse = field(default_factory=api_pb2.ListAndWatchResponse)
    last_message: api_pb2.ListAndWatchResponse = field(default_factory=api_pb2.ListAndWatchResponse)
    messages: int = 0
    notified: bool = False
    lost: bool = False
    stream_problem: str = ""

    @property
    def usable(self) -> bool:
        """Whether the kubelet has the plugin's list and the connection, even if the plugin ended the stream itself.

        A driver has no list; it is notified of its registration.
        """
        return (self.messages > 0 if self.is_device_plugin else self.notified) and not self.lost


@dataclass(slots=True)
class RegistrySocket:
    """One socket in the registry, and how far its registration is."""

    stamp: Stamp
    task: asyncio.Task[None]
    registration: ObservedRegistration | None = None
    problem: str = ""
