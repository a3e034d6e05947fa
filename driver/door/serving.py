"""The driver's two sockets: one for claims and health in its own folder, one in the kubelet's registry.

They come and go together. The socket for claims is there first, since the kubelet dials it the moment it has been told
of it. A serving that takes the place of another leaves the other's sockets to its caller: the kubelet goes on using
them until it has found the new ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc.aio

from driver.door import dra_v1, dra_v1beta1, health_v1, health_v1alpha1
from driver.door.claim_calls import ClaimCalls
from driver.door.health_stream import HealthReports
from driver.door.registration import PLUGIN_TYPE, DoorOptions
from driver.door.socket_names import age, claim_socket, registration_socket, unique
from node.endpoint import Endpoint
from node.intake import Limits
from node.kubelet import watcher_service
from node.sockets import make_private_directory
from protos.dra.v1 import api_pb2_grpc as dra_v1_grpc
from protos.dra.v1beta1 import api_pb2_grpc as dra_v1beta1_grpc
from protos.drahealth.v1 import api_pb2_grpc as health_v1_grpc
from protos.drahealth.v1alpha1 import api_pb2_grpc as health_v1alpha1_grpc
from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc

LIMITS = Limits(calls=1024)
"""The kubelet asks for the claims of each pod in a call of its own, for all pods of the node at once."""
_CLAIM_SERVICES = (dra_v1.SERVICE, dra_v1beta1.SERVICE)
_HEALTH_SERVICES = (health_v1.SERVICE, health_v1alpha1.SERVICE)


class Serving:
    """Both sockets from ``start`` to ``stop``; make a new one to serve again.

    ``asked`` and ``notified``: what the kubelet does, see ``node.kubelet.watcher_service``; they get this very serving,
    so that word about an earlier one is not taken for this one's.
    """

    def __init__(
        self,
        options: DoorOptions,
        calls: ClaimCalls,
        reports: HealthReports,
        asked: Callable[[Serving], None],
        notified: Callable[[Serving, str], None],
    ) -> None:
        self.made = (0, 0)
        """When its socket was made, as an ``age``."""
        self._options = options
        self._calls = calls
        self._reports = reports
        self._asked = asked
        self._notified = notified
        self._claims: Endpoint | None = None
        self._registration: Endpoint | None = None

    @property
    def socket(self) -> Path | None:
        """The socket that claims are served on."""
        return None if self._claims is None else self._claims.path

    @property
    def registration_socket(self) -> Path | None:
        """The socket in the kubelet's registry."""
        return None if self._registration is None else self._registration.path

    @property
    def named(self) -> bool:
        """Whether the claims' socket has its name still; a successor that is registered takes it away."""
        return self._claims is not None and self._claims.intact

    @property
    def intact(self) -> bool:
        """Whether both sockets are there and ours."""
        return self.named and self._registration is not None and self._registration.intact

    async def start(self) -> None:
        """Serve. Raises ``node.sockets.SocketError``, with nothing left behind."""
        options, serving = self._options, unique()
        make_private_directory(options.folder)
        services = (*_CLAIM_SERVICES, *_HEALTH_SERVICES) if options.health else _CLAIM_SERVICES
        claims = Endpoint(options.folder, claim_socket(serving), services, self._add_services, LIMITS)
        self._claims = claims
        info = api_pb2.PluginInfo(
            type=PLUGIN_TYPE,
            name=options.driver_name,
            endpoint=options.seen_by_kubelet(claims.path),
            supported_versions=options.services,
        )
        watcher = watcher_service.RegistrationServicer(
            info, lambda: self._asked(self), lambda problem: self._notified(self, problem)
        )
        try:
            self._registration = Endpoint(
                options.registry_dir,
                registration_socket(options, serving),
                (watcher_service.SERVICE,),
                lambda server: api_pb2_grpc.add_RegistrationServicer_to_server(watcher, server),
            )
            await claims.start()
            await self._registration.start()
        except BaseException:
            await self.stop()
            raise
        self.made = age(claims.path)

    async def stop(self, grace: float | None = None) -> None:
        """End what runs, after ``grace`` seconds by force, and only then take the name out of the kubelet's registry.

        A kubelet that sees the name go hangs up at once, also where an answer is on its way.
        """
        registration, self._registration = self._registration, None
        claims, self._claims = self._claims, None
        for endpoint in (claims, registration):
            if endpoint is not None:
                await endpoint.stop(grace)

    def _add_services(self, server: grpc.aio.Server) -> None:
        dra_v1_grpc.add_DRAPluginServicer_to_server(dra_v1.DraV1(self._calls), server)
        dra_v1beta1_grpc.add_DRAPluginServicer_to_server(dra_v1beta1.DraV1Beta1(self._calls), server)
        # A method that is there and not implemented makes kubelets ask again every 5 s for ever.
        if self._options.health:
            health_v1_grpc.add_DRAResourceHealthServicer_to_server(health_v1.HealthV1(self._reports), server)
            health_v1alpha1_grpc.add_DRAResourceHealthServicer_to_server(
                health_v1alpha1.HealthV1Alpha1(self._reports), server
            )
