"""A real API server that logs every request of its agents, can go away for a while, and knows many Nodes."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from bench.dra.server import server_place
from bench.scale.audit import POLICY, AuditLog
from deploy.generate import MANIFESTS
from tests.cluster.components.build import kubernetes
from tests.cluster.rig.api import Object, RigApi, RigCredentials
from tests.cluster.rig.control_plane import ControlPlane
from tests.cluster.rig.pki import RigAuthority
from tests.cluster.rig.place import RigPlace

CLIENTS = 8
"""Threads that make objects."""
NAMESPACE = "ostler-system"
RIGHTS = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Account:
    """A service account that has the agent's rights: its name for the server, and how to be it."""

    user: str
    kubeconfig: Path


@dataclass(frozen=True, slots=True)
class Traffic:
    """Open connections of clients of the API server, and the bytes that those have carried in both directions."""

    connections: int
    bytes: int


class ScaleServer:
    """``api`` asks as the administrator, who is in no log."""

    def __init__(self, place: RigPlace, authority: RigAuthority, plane: ControlPlane, audit: Path) -> None:
        self._place = place
        self._authority = authority
        self._plane = plane
        self.audit = AuditLog(audit)
        self.api = RigApi(
            place.api,
            authority.certificate,
            RigCredentials(authority.folder / "admin.crt", authority.folder / "admin.key"),
        )

    def account(self, name: str) -> Account:
        """A new account with the rights that the chart gives."""
        user = f"system:serviceaccount:{NAMESPACE}:{name}"
        groups = "".join(f"/O=system:serviceaccounts{group}" for group in ("", f":{NAMESPACE}"))
        return Account(user, self._authority.kubeconfig(name, f"{groups}/CN={user}", self._place.root / f"{name}.json"))

    def allow(self, *names: str) -> None:
        """Make the chart's roles, and bind them to these accounts."""
        subjects = [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE} for name in names]
        group = "/apis/rbac.authorization.k8s.io/v1"
        for found in yaml.safe_load_all((MANIFESTS / "ostler-dra.yaml").read_text()):
            if found["kind"] not in RIGHTS:
                continue
            if "subjects" in found:
                found["subjects"] = subjects
            namespace = found["metadata"].get("namespace")
            place = f"{group}/namespaces/{namespace}" if namespace else group
            self.api.create(f"{place}/{found['kind'].lower()}s", found)

    def make(self, objects: Iterable[tuple[str, Object]]) -> list[Object]:
        """Create objects in these collections, several at a time, in any order."""
        kept = self.api.kept()
        try:
            with ThreadPoolExecutor(CLIENTS) as clients:
                return list(clients.map(lambda each: kept.create(*each), objects))
        finally:
            kept.close()

    def make_nodes(self, names: Iterable[str]) -> None:
        """Nodes that nobody runs."""
        self.make(("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}) for name in names)

    def traffic(self) -> Traffic:
        """What clients have sent and received over the connections that are open now."""
        shown = subprocess.run(
            ["ss", "-tinOH", "dst", self._place.api, "dport", "=", ":443"], check=True, capture_output=True, text=True
        ).stdout
        counted = re.findall(r"\bbytes_(?:sent|received):(\d+)", shown)
        return Traffic(len(shown.splitlines()), sum(map(int, counted)))

    @property
    def rss_bytes(self) -> int:
        """Resident memory of the API server."""
        status = Path(f"/proc/{self._plane.processes['kube-apiserver'].pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0

    def go(self) -> None:
        """End the API server at once, as a crash of its machine does."""
        self._plane.stop_api_server()

    def come(self) -> float:
        """Start it again; the Unix time at which it was ready."""
        self._plane.start_api_server()
        return time.time()

    @contextlib.contextmanager
    def away(self) -> Iterator[Attempts]:
        """While the API server is away: count who tries to reach it, and hang up."""
        with socket.create_server((self._place.api, 443), backlog=4096) as listening:
            attempts = Attempts(listening)
            try:
                yield attempts
            finally:
                attempts.end()


class Attempts:
    """Accepts connections in a thread and closes them; ``count`` has their number."""

    def __init__(self, listening: socket.socket) -> None:
        self.count = 0
        self._ended = False
        self._listening = listening
        listening.settimeout(0.1)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self._ended:
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listening.accept()
                connection.close()
                self.count += 1

    def end(self) -> None:
        """Accept no more."""
        self._ended = True
        self._thread.join()


@contextlib.contextmanager
def scale_server(version: str = "") -> Iterator[ScaleServer]:
    """A new API server with a namespace and its default account; it is gone afterwards."""
    with server_place() as (place, authority):
        policy, audit = place.root / "audit-policy.json", place.root / "audit.log"
        policy.write_text(json.dumps(POLICY))
        audit.touch()
        flags = (f"--audit-policy-file={policy}", f"--audit-log-path={audit}")
        plane = ControlPlane(place, authority, kubernetes(version), api_flags=flags)
        plane.start_api()
        server = ScaleServer(place, authority, plane, audit)
        server.api.wait("/api/v1/namespaces/default", "exists", lambda _: True)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        server.api.create("/api/v1/namespaces/default/serviceaccounts", account)
        yield server
