"""How to reach the API server: from inside a pod, or as a kubeconfig says.

The client library can load both, but its errors name neither field nor fix, it goes on without credentials when a
plugin fails, and it never reads a token file of a kubeconfig again. So facts are read here, checked when they are read,
and handed to its transport; credential plugins are run by it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kube.credentials import Certificate, Credentials, TokenFile
from kube.errors import ConfigurationError
from kube.files import read_small
from kube.memory_file import MemoryFile

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """All that a client needs.

    ``server``: ``https://host:port``, possibly with a path, without a slash at its end. ``origin``: where this was
    read, for people. ``ca``: path of a PEM file, None for the system's. ``server_name``: name to expect in the
    certificate, where it is not the host's. ``proxy``: URL, None for what the environment says. ``namespace``: the one
    that is meant where none is named, empty where nothing says.
    """

    server: str
    origin: str
    credentials: Credentials
    ca: str | None = None
    verify: bool = True
    server_name: str | None = None
    proxy: str | None = None
    namespace: str = ""
    held: tuple[MemoryFile, ...] = ()


def runs_in_cluster(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> bool:
    """Whether this is a pod with an account: one with ``automountServiceAccountToken: false`` has none."""
    return bool(environment.get(HOST)) and (folder / "token").exists()


def in_cluster(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access:
    """Access by a pod's service account; raises ``ConfigurationError``."""
    host, port = environment.get(HOST, ""), environment.get(PORT, "")
    for name, value in ((HOST, host), (PORT, port)):
        if not value:
            raise ConfigurationError("environment", name, "is not set", "run in a pod, or give a kubeconfig")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigurationError("environment", PORT, f"is {port!r}, no port", "give a number from 1 to 65535")
    token = TokenFile(folder / "token", str(folder), "token")
    token.current()
    ca = folder / "ca.crt"
    check_authority(str(ca), str(folder), "ca.crt")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        namespace = read_small(folder / "namespace").decode().strip()
    except (OSError, ValueError):
        # Its absence hinders nobody who names a namespace.
        namespace = ""
    return Access(server, f"service account in {folder}", token, ca=str(ca), namespace=namespace)


def check_authority(path: str, source: str, field: str) -> None:
    """Raise ``ConfigurationError`` unless ``path`` holds certificates that a server can be checked with."""
    fix = "give a PEM file with the cluster's CA certificate"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise ConfigurationError(
            source, field, f"holds no certificate in PEM form ({reason_of(error)})", fix
        ) from error
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror or error})"
        raise ConfigurationError(source, field, problem, fix) from error


def check_certificate(pair: Certificate, source: str, field: str) -> None:
    """Raise ``ConfigurationError`` unless certificate and key can be used together."""
    try:
        # A password would be asked for on the terminal, for ever where there is none.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(pair.certificate, pair.key, password=_no_password)
    except ssl.SSLError as error:
        fix = "give a certificate and its key, both in PEM form"
        raise ConfigurationError(
            source, field, f"certificate and key are not usable ({reason_of(error)})", fix
        ) from error
    except OSError as error:
        names = pair.certificate if pair.certificate == pair.key else f"{pair.certificate} or {pair.key}"
        problem = f"{names} cannot be read ({error.strerror or error})"
        raise ConfigurationError(source, field, problem, "give files that the agent may read") from error
    except _Encrypted as error:
        raise ConfigurationError(source, field, "the key has a password", "give a key without one") from error


def reason_of(error: ssl.SSLError) -> str:
    """OpenSSL's reason in few words."""
    return (error.reason or error.strerror or str(error)).lower().replace("_", " ")


class _Encrypted(Exception):
    """The key is encrypted."""


def _no_password() -> str:
    raise _Encrypted
