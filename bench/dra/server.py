"""A real API server (etcd and kube-apiserver) without kubelet, scheduler or controllers: nothing else writes there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.components.build import kubernetes
from tests.cluster.rig.api import Api, Credentials
from tests.cluster.rig.cluster import down
from tests.cluster.rig.control_plane import ControlPlane
from tests.cluster.rig.pki import Authority
from tests.cluster.rig.place import name_of_run, take_place
from tests.cluster.rig.prerequisites import check

NODE = "node-1"


@dataclass(frozen=True, slots=True)
class Server:
    """``api`` asks as the administrator, and so does who has ``kubeconfig``."""

    api: Api
    kubeconfig: Path


@contextlib.contextmanager
def api_server(version: str = "") -> Iterator[Server]:
    """A new API server with a namespace and one Node that nobody runs; it is gone afterwards."""
    check()
    name = name_of_run()
    down(name)
    try:
        place = take_place(name)
        authority = Authority(place)
        authority.create()
        authority.kubeconfig("admin", "/O=system:masters/CN=admin", place.kubeconfig)
        ControlPlane(place, authority, kubernetes(version)).start_api()
        api = Api(
            place.api,
            authority.certificate,
            Credentials(authority.folder / "admin.crt", authority.folder / "admin.key"),
        )
        api.wait("/api/v1/namespaces/default", "exists", lambda _: True)
        api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        yield Server(api, place.kubeconfig)
    finally:
        down(name)
