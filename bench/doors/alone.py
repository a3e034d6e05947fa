"""A kubelet that says that no pod has a device, for an instance that shall know nothing of the other door.

The ledger cannot be switched off: an instance that offers devices to claims asks the kubelet what pods have, and offers
none while it gets no answer. ``python -m bench.doors.alone FOLDER`` makes a folder that looks like the kubelet's, in
which nothing is ever allocated (a checkpoint that is not there says that); the registry in it is the real one.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from protos.podresources.v1 import api_pb2, api_pb2_grpc

KUBELET = Path("/var/lib/kubelet")
REGISTRY, DEVICE_PLUGINS = "plugins_registry", "device-plugins"


class _Nothing(api_pb2_grpc.PodResourcesListerServicer):
    """Nothing is allocated, and nothing can be."""

    def List(  # noqa: N802  # named by the protocol
        self, request: api_pb2.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> api_pb2.ListPodResourcesResponse:
        """No pod has anything."""
        return api_pb2.ListPodResourcesResponse()

    def GetAllocatableResources(  # noqa: N802  # named by the protocol
        self, request: api_pb2.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> api_pb2.AllocatableResourcesResponse:
        """No plugin offers anything."""
        return api_pb2.AllocatableResourcesResponse()


def serve(folder: Path) -> None:
    """Serve until the process is ended."""
    pod_resources = folder / "pod-resources"
    for made in (pod_resources, folder / DEVICE_PLUGINS):
        made.mkdir(parents=True)
    (folder / REGISTRY).symlink_to(KUBELET / REGISTRY)
    server = grpc.server(ThreadPoolExecutor(1))
    api_pb2_grpc.add_PodResourcesListerServicer_to_server(_Nothing(), server)
    server.add_insecure_port(f"unix:{pod_resources / 'kubelet.sock'}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
