"""A whole cluster: brought up in the order that is quickest, taken down to the last trace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.cluster.components.build import containerd, kubernetes
from tests.cluster.components.versions import pinned
from tests.cluster.rig.api import RigApi, RigCredentials
from tests.cluster.rig.control_plane import ControlPlane
from tests.cluster.rig.node import RigNode, remove_cgroups
from tests.cluster.rig.pki import RigAuthority
from tests.cluster.rig.place import (
    RigPlace,
    allow_forwarding,
    allow_watches,
    leave_place,
    orphans,
    place_of,
    places,
    take_place,
)
from tests.cluster.rig.prerequisites import check
from tests.cluster.rig.processes import end_all
from tests.making.cache import alone_in

NAMES = Path("/tmp")
"""Locked while a cluster is brought up or down, by name: a folder, so that no file of ours is left."""

KEPT = Path(__file__).parents[3] / "build" / "cluster-logs"
"""Where the logs of components go when something fails."""


class RigCluster:
    """A running Kubernetes; ``api`` asks as its administrator. ``traced``: its components log every step of a pod."""

    def __init__(self, place: RigPlace, version: str, nodes: int, *, traced: bool = False) -> None:
        self.place = place
        self.version = version
        self.binaries = kubernetes(version)
        self.authority = RigAuthority(place)
        self.control_plane = ControlPlane(place, self.authority, self.binaries, traced=traced)
        runtime = containerd()
        self.nodes = [
            RigNode(place, index, self.authority, self.binaries, runtime, traced=traced) for index in range(nodes)
        ]

    @property
    def api(self) -> RigApi:
        """Requests as the administrator."""
        folder = self.authority.folder
        return self.api_as(RigCredentials(folder / "admin.crt", folder / "admin.key"))

    def api_as(self, credentials: RigCredentials) -> RigApi:
        """Requests as somebody else."""
        return RigApi(self.place.api, self.authority.certificate, credentials)

    def kubectl(self, *arguments: str, text: str | None = None, check: bool = True) -> str:
        """Run kubectl as the administrator; its output. Raises OSError with its words."""
        return self.tool(self.binaries / "kubectl", *arguments, text=text, check=check)

    def tool(self, command: Path, *arguments: str, text: str | None = None, check: bool = True) -> str:
        """Run a client with the administrator's kubeconfig; its output. Raises OSError with its words."""
        done = subprocess.run(
            [command, *arguments], check=False, capture_output=True, text=True, input=text, timeout=300,
            env={**os.environ, "KUBECONFIG": str(self.place.kubeconfig), **self._caches()},
        )  # fmt: skip
        if check and done.returncode:
            raise OSError(f"{command.name} {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def keep_logs(self, name: str) -> Path:
        """Copy every component's log to a folder of this name in the checkout; its path."""
        kept = KEPT / name
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.place.log_folder, kept)
        return kept

    def _caches(self) -> dict[str, str]:
        """Where clients keep what they know of API servers: the next cluster at this address may be another version."""
        folder = self.place.root / "clients"
        return {
            "KUBECACHEDIR": str(folder),
            **{f"HELM_{kind}_HOME": str(folder) for kind in ("CACHE", "CONFIG", "DATA")},
        }

    def start(self) -> None:
        """Start everything; returns when pods can be created."""
        allow_forwarding()
        allow_watches()
        self.authority.create()
        self.authority.kubeconfig("admin", "/O=system:masters/CN=admin", self.place.kubeconfig)
        self.control_plane.start_api()
        self.control_plane.start_rest()
        for node in self.nodes:
            node.start()
        self.control_plane.wait_rest()
        for node in self.nodes:
            node.wait_ready(self.api)
        # Before these exist, pods are refused.
        for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            self.api.wait(f"/api/v1/namespaces/default/{path}", "exists", lambda _: True)


def up(name: str, version: str = "", nodes: int = 1, *, traced: bool = False) -> RigCluster:
    """A new cluster; one of the same name is taken down first. What fails on the way is taken down again.

    ``traced``: its components log every step of a pod, which costs time.

    Raises ``Missing``, ``NoPlace``, ``UnknownVersion``, ``NotReady``, ``NotAsExpected``, OSError.
    """
    check()
    place = new_place(name)
    cluster = RigCluster(place, pinned(version), nodes, traced=traced)
    (place.root / "state.json").write_text(json.dumps({"version": cluster.version, "nodes": nodes}))
    cluster.start()
    return cluster


def new_place(name: str) -> RigPlace:
    """A place for what has this name; what had it before is taken down. Raises ``NoPlace``."""
    with alone_in(NAMES):
        _down(name)
        return take_place(name)


def attach(name: str) -> RigCluster | None:
    """The cluster of this name as ``up`` left it, None where there is none."""
    place = place_of(name)
    if place is None or not (place.root / "state.json").exists():
        return None
    state = json.loads((place.root / "state.json").read_text())
    return RigCluster(place, state["version"], state["nodes"])


def down(name: str) -> list[str]:
    """Take a cluster down to the last trace, and what dead test runs left too; the names of those that were there."""
    with alone_in(NAMES):
        return _down(name)


def _down(name: str) -> list[str]:
    """``mkdir`` comes before the name is written: a folder without a name is of somebody who died in between."""
    gone = []
    for place in (place for place in places() if place.name in {name, ""} or place in orphans()):
        gone.append(place.name)
        end_all(place.root)
        remove_cgroups(place.root)
        leave_place(place)
    return gone
