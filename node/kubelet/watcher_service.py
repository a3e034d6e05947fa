"""The plugin watcher's questions, answered on a socket in the kubelet's ``plugins_registry``; the same for both doors.

The notification is always answered without an error, because kubelets from 1.36 on deregister a plugin that answers it
with one, over and over; of a refusal they log their own reason only if we do not add another.
"""

from __future__ import annotations

from typing import Protocol

import grpc.aio

from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc

Context = grpc.aio.ServicerContext[object, object]
INQUIRY = ("ostler-inquiry", "true")
"""Metadata of questions of ostler's own to plugins: a kubelet that asks also decides, ostler does not."""
SERVICE: str = api_pb2.DESCRIPTOR.services_by_name["Registration"].full_name


class Registrant(Protocol):
    """The door that wants to be registered; it must not block the watcher."""

    def kubelet_asked(self) -> None:
        """The kubelet has found the socket and asked what it serves; it may ask again at any time."""

    def kubelet_decided(self, refusal: str) -> None:
        """The kubelet has taken the registration (an empty text), or refused it for this reason."""


class RegistrationServicer(api_pb2_grpc.RegistrationServicer):
    """Answers with ``info`` what the socket serves. ``registrant`` gets the kubelet's verdict."""

    def __init__(self, info: api_pb2.PluginInfo, registrant: Registrant) -> None:
        self._info = info
        self._registrant = registrant

    async def GetInfo(  # noqa: N802  # the method names are gRPC's
        self, request: api_pb2.InfoRequest, context: Context
    ) -> api_pb2.PluginInfo:
        """Type, name, endpoint and versions; may be asked again at any time."""
        if INQUIRY not in (tuple(each) for each in context.invocation_metadata() or ()):
            self._registrant.kubelet_asked()
        return self._info

    async def NotifyRegistrationStatus(  # noqa: N802
        self, request: api_pb2.RegistrationStatus, context: Context
    ) -> api_pb2.RegistrationStatusResponse:
        """Take note of success (an empty text) or of the kubelet's error."""
        refusal = "" if request.plugin_registered else request.error or "the kubelet gave no reason"
        self._registrant.kubelet_decided(refusal)
        return api_pb2.RegistrationStatusResponse()
