"""Two real API servers, one for each kind of scenario, with nothing else that acts on the objects."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.components.build import kubernetes
from tests.cluster.components.versions import RECORDED
from tests.cluster.rig.pki import openssl

TOKEN = "judge"
OFF = ("DRADeviceTaints", "DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceBindingConditions")
"""Gates that the vectors' second server has off; 1.36 turns them on by itself where they are beta."""
_READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Servers:
    """URLs of the two."""

    default: str
    gates_off: str


@contextlib.contextmanager
def servers() -> Iterator[Servers]:
    """Start etcd and both servers, and end them; needs Kubernetes' binaries, see ``tests.cluster.components``."""
    binaries = kubernetes(RECORDED)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ostler-judge-")))
        client, peer, first, second = _ports(4)
        _start(stack, folder, "etcd", [binaries / "etcd", *_etcd(folder, client, peer)])
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / "key")
        openssl("pkey", "-in", folder / "key", "-pubout", "-out", folder / "key.pub")
        (folder / "tokens").write_text(f"{TOKEN},judge,1,system:masters\n")
        started = []
        for name, port, on in (("default", first, True), ("gates-off", second, False)):
            command: list[str | Path] = [binaries / "kube-apiserver", *_api(folder, client, name, port, on=on)]
            started.append((name, port, _start(stack, folder, name, command)))
        for name, port, process in started:
            _wait_ready(name, port, process, folder)
        yield Servers(*[f"https://127.0.0.1:{port}" for _, port, _ in started])


def _etcd(folder: Path, client: int, peer: int) -> list[str]:
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
        "--log-level=error",
    ]


def _api(folder: Path, etcd: int, name: str, port: int, *, on: bool) -> list[str]:
    gates = [f"{gate}={str(on).lower()}" for gate in OFF]
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        f"--etcd-prefix=/{name}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / name}",
        f"--token-auth-file={folder / 'tokens'}",
        "--authorization-mode=AlwaysAllow",
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--service-account-key-file={folder / 'key.pub'}",
        f"--service-account-signing-key-file={folder / 'key'}",
        "--service-account-issuer=https://judge.example.com",
        f"--feature-gates={','.join(gates)}",
    ]


def _start(stack: contextlib.ExitStack, folder: Path, name: str, command: list[str | Path]) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=subprocess.STDOUT)

    def end() -> None:
        process.kill()
        process.wait()

    stack.callback(end)
    return process


def _wait_ready(name: str, port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + _READY_SECONDS
    while not _ready(port):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{name} does not become ready:\n" + (folder / f"{name}.log").read_text()[-3000:])
        time.sleep(0.1)


def _ready(port: int) -> bool:
    # A certificate of the server's own making: nothing but this process's own requests goes there.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=2)
    try:
        connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
