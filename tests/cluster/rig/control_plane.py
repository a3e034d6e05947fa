"""etcd, API server, controllers and scheduler as plain processes on the cluster's own addresses."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
from pathlib import Path

from tests.cluster.rig.pki import RigAuthority
from tests.cluster.rig.place import RigPlace, add_address
from tests.cluster.rig.processes import died, kill, living, log_of, start, wait_until

AUDIT = "audit"
"""The API server's audit log, beside the logs of the components: one JSON event a line."""
_AUDITED = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["list", "watch"]},
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch"],
            "resources": [
                {"group": "", "resources": ["pods/status"]},
                {"group": "resource.k8s.io", "resources": ["resourceclaims", "resourceclaims/status"]},
            ],
        },
        {
            "level": "Metadata",
            "resources": [
                {"group": "", "resources": ["pods", "pods/binding", "pods/status"]},
                {"group": "resource.k8s.io", "resources": ["resourceclaims", "resourceclaims/status"]},
            ],
        },
    ],
}


class ControlPlane:
    """The four processes of one cluster; ``binaries`` has them by name.

    ``traced``: the API server writes its audit log: who reads and writes pods and claims, and when. ``api_flags``: more
    flags of the API server.
    """

    def __init__(
        self,
        place: RigPlace,
        authority: RigAuthority,
        binaries: Path,
        *,
        traced: bool = False,
        api_flags: tuple[str, ...] = (),
    ) -> None:
        self._traced = traced
        self._place = place
        self._authority = authority
        self._binaries = binaries
        self._api_flags = api_flags
        self._root = place.root
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._pid_file = place.root / "kube-apiserver.pid"

    def start_api(self) -> None:
        """Start etcd and the API server, and return when it is ready."""
        add_address(self._place.api)
        add_address(self._place.control)
        self._start("etcd", *self._etcd())
        self._wait("etcd", f"http://{self._place.control}:2379/health")
        self.start_api_server()

    def start_api_server(self) -> None:
        """Start the API server (again), and return when it is ready."""
        self._start("kube-apiserver", *self._api_server())
        self._pid_file.write_text(str(self.processes["kube-apiserver"].pid))
        self._wait("kube-apiserver", f"https://{self._place.api}/readyz")

    def stop_api_server(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the API server, whoever started it, and return when it is gone; what it stored stays."""
        pid = int(self._pid_file.read_text())
        kill(pid, number)
        wait_until("kube-apiserver ends", lambda: not living(pid))
        process = self.processes.pop("kube-apiserver", None)
        if process is not None:
            process.wait()

    def start_rest(self) -> None:
        """Start controllers and scheduler, and do not wait."""
        common = (f"--bind-address={self._place.control}", "--leader-elect=false")
        self._start(
            "kube-controller-manager", *common, *self._identity("kube-controller-manager"), *self._controllers()
        )
        self._start("kube-scheduler", *common, *self._identity("kube-scheduler"))

    def wait_rest(self) -> None:
        """Return when controllers and scheduler are healthy."""
        self._wait("kube-controller-manager", f"https://{self._place.control}:10257/healthz")
        self._wait("kube-scheduler", f"https://{self._place.control}:10259/healthz")

    def _start(self, component: str, *arguments: str) -> None:
        self.processes[component] = start(self._root, component, [self._binaries / component, *arguments])

    def _wait(self, component: str, url: str) -> None:
        """Ready is what our own child says while it lives: something else could listen there."""
        process = self.processes[component]
        wait_until(
            f"{component} is ready",
            lambda: _answers(url, self._authority.certificate),
            alive=lambda: died(process, self._root, component),
        )

    def _identity(self, component: str) -> list[str]:
        path = self._root / f"{component}.kubeconfig"
        if not path.exists():
            self._authority.kubeconfig(component, f"/CN=system:{component}", path)
        return [f"--{name}={path}" for name in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")]

    def _etcd(self) -> list[str]:
        client, peer = (f"http://{self._place.control}:{port}" for port in (2379, 2380))
        return [
            f"--data-dir={self._root / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _api_server(self) -> list[str]:
        pki = self._authority.folder
        return [
            f"--etcd-servers=http://{self._place.control}:2379",
            f"--bind-address={self._place.api}",
            f"--advertise-address={self._place.api}",
            "--secure-port=443",
            f"--service-cluster-ip-range={self._place.services}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={self._authority.certificate}",
            f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={pki / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={pki / 'service-accounts.pub'}",
            f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            *self._audit(),
            *self._api_flags,
        ]

    def _audit(self) -> list[str]:
        if not self._traced:
            return []
        policy = self._root / "audit-policy.json"
        policy.write_text(json.dumps(_AUDITED))
        return [f"--audit-policy-file={policy}", f"--audit-log-path={log_of(self._root, AUDIT)}"]

    def _controllers(self) -> list[str]:
        pki = self._authority.folder
        return [
            f"--service-account-private-key-file={pki / 'service-accounts.key'}",
            f"--root-ca-file={self._authority.certificate}",
            f"--cluster-signing-cert-file={self._authority.certificate}",
            f"--cluster-signing-key-file={pki / 'ca.key'}",
            "--use-service-account-credentials=true",
            # With the default rate the first service account takes seconds more.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]


def _answers(url: str, authority: Path) -> bool:
    """Whether ``url`` answers 200. Controllers and scheduler sign their own certificates: those are not verified."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    connection: http.client.HTTPConnection
    if scheme == "http":
        connection = http.client.HTTPConnection(host, timeout=10)
    else:
        context = ssl.create_default_context(cafile=str(authority))
        if ":" in host:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, context=context, timeout=10)
    try:
        connection.request("GET", f"/{path}")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
