"""The plugin watcher's questions, answered on the plugin's own socket.

An empty endpoint makes the kubelet use the socket it found, by the path it knows: nothing has to be said about how the
agent's mounts differ from the host's. The notification is always answered without an error, because kubelets from 1.36
on deregister a plugin that answers it with one, over and over.
"""

from __future__ import annotations

from collections.abc import Callable

import grpc.aio

from plugin.kubelet import VERSION
from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc

Context = grpc.aio.ServicerContext[object, object]


class RegistrationServicer(api_pb2_grpc.RegistrationServicer):
    """Says what the socket serves; ``asked`` and ``notified`` tell the registrar that the kubelet came."""

    def __init__(self, resource: str, asked: Callable[[], None], notified: Callable[[str], None]) -> None:
        self._resource = resource
        self._asked = asked
        self._notified = notified

    async def GetInfo(  # noqa: N802  # the method names are gRPC's
        self, request: api_pb2.InfoRequest, context: Context
    ) -> api_pb2.PluginInfo:
        """Type, resource name and version; may be asked again at any time."""
        self._asked()
        return api_pb2.PluginInfo(type="DevicePlugin", name=self._resource, supported_versions=[VERSION])

    async def NotifyRegistrationStatus(  # noqa: N802
        self, request: api_pb2.RegistrationStatus, context: Context
    ) -> api_pb2.RegistrationStatusResponse:
        """Take note of success (an empty text) or of the kubelet's error."""
        self._notified("" if request.plugin_registered else request.error or "the kubelet gave no reason")
        return api_pb2.RegistrationStatusResponse()
