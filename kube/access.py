"""How to reach the API server and with which credentials: those of the pod, or those of a kubeconfig.

The client library can load both, but its errors name neither field nor fix, it continues without credentials when a
plugin fails, and it never reads a kubeconfig's token file again. So this module reads the facts, checks them at once,
and hands them to the library's transport. The library runs credential plugins.

No credential is kept longer than it is valid. Token files rotate (a pod's token every hour or so) and are read for
every request: that costs microseconds, and a copy would be wrong as soon as the old token expires.
"""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from kube.errors import ConfigurationError
from kube.files import MemoryFile, read_small
from kube.library import library

EARLY = 60.0
"""Seconds before a credential expires at which ostler asks its plugin for a new one."""
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A PEM certificate and its key, by their paths. ``held`` keeps those alive that exist only in memory."""

    certificate: str
    key: str
    held: tuple[MemoryFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Credential:
    """``authorization``: the value of that header, empty for none."""

    authorization: str = ""
    certificate: Certificate | None = None


class Credentials(Protocol):
    """A source of credentials; ``origin`` names it for people."""

    @property
    def origin(self) -> str:
        """Such as ``the token in /var/run/…/token``."""

    def current(self) -> Credential:
        """The credential for the next request; raises ``ConfigurationError``. May block (a plugin is a process)."""

    def refused(self) -> None:
        """The server refused the last credential: do not return it again if there may be another."""


@dataclass(frozen=True, slots=True)
class FixedCredentials:
    """A credential that does not change while the process runs; the files of its certificate may."""

    origin: str
    credential: Credential = Credential()

    def current(self) -> Credential:
        """See ``Credentials``."""
        return self.credential

    def refused(self) -> None:
        """See ``Credentials``."""


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token in a file that others replace; ``source`` and ``field`` as of ``ConfigurationError``."""

    path: Path
    source: str
    field: str
    certificate: Certificate | None = None

    @property
    def origin(self) -> str:
        """See ``Credentials``."""
        return f"the token in {self.path}"

    def current(self) -> Credential:
        """See ``Credentials``."""
        try:
            token = read_small(self.path).decode("ascii")
        except OSError as error:
            problem = f"{self.path} cannot be read ({error.strerror or error})"
            raise ConfigurationError(self.source, self.field, problem, "give a file with a token") from error
        except UnicodeDecodeError as error:
            problem = f"{self.path} contains no token"
            raise ConfigurationError(self.source, self.field, problem, "a token is ASCII text") from error
        return Credential(bearer(token, str(self.path), self.source, self.field), self.certificate)

    def refused(self) -> None:
        """See ``Credentials``."""


def bearer(token: str, where: str, source: str, field: str) -> str:
    """The header's value for a token, written in ``where``. Raises ``ConfigurationError`` for anything else."""
    token = token.strip()
    if not token:
        raise ConfigurationError(source, field, f"{where} is empty", "give a token")
    if not token.isascii() or not token.isprintable() or " " in token:
        # Never shown: it may be a secret.
        raise ConfigurationError(source, field, f"{where} contains no token", "a token is one word without line breaks")
    return f"Bearer {token}"


class ExecPlugin:
    """A credential plugin (client-go's exec). The client library runs it, again shortly before its answer expires.

    ``configuration``: the ``exec`` object of the kubeconfig ``source``, at ``field``; ``cluster``: its cluster.
    """

    def __init__(
        self,
        configuration: Mapping[str, object],
        cluster: Mapping[str, object],
        source: str,
        field: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.origin = f"the credential plugin {configuration['command']}"
        self._configuration = configuration
        self._cluster = cluster
        self._source = source
        self._field = field
        self._clock = clock
        self._known: Credential | None = None
        self._ends: float | None = None

    def current(self) -> Credential:
        """See ``Credentials``."""
        if self._known is None or (self._ends is not None and self._clock() > self._ends - EARLY):
            self._known, self._ends = self._ask()
        return self._known

    def refused(self) -> None:
        """See ``Credentials``."""
        self._known = None

    def _ask(self) -> tuple[Credential, float | None]:
        folder = str(Path(self._source).parent)
        try:
            status = library().exec_provider(_Node(self._configuration), folder, _Cluster(self._cluster)).run()
        except Exception as error:
            # The library's errors differ from version to version, so all of them become ours.
            raise self._error(str(error) or type(error).__name__) from error
        if not isinstance(status, dict):
            raise self._error("its answer has no status object")
        return self._credential(status), self._end(status)

    def _credential(self, status: Mapping[str, object]) -> Credential:
        token, certificate, key = (status.get(name) for name in ("token", "clientCertificateData", "clientKeyData"))
        pair = None
        if isinstance(certificate, str) and isinstance(key, str):
            held = (MemoryFile(certificate.encode()), MemoryFile(key.encode()))
            pair = Certificate(held[0].path, held[1].path, held)
        if isinstance(token, str) and token:
            return Credential(bearer(token, "its answer's token", self._source, self._field), pair)
        if pair is None:
            raise self._error("its answer has neither token nor clientCertificateData with clientKeyData")
        return Credential(certificate=pair)

    def _end(self, status: Mapping[str, object]) -> float | None:
        text = status.get("expirationTimestamp")
        if text is None:
            return None
        try:
            end = datetime.fromisoformat(str(text))
        except ValueError as error:
            raise self._error(f"its answer's expirationTimestamp {text!r} is not a timestamp") from error
        return (end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp()

    def _error(self, problem: str) -> ConfigurationError:
        fix = f"run {self._configuration['command']} by hand, as the agent's user"
        return ConfigurationError(self._source, self._field, f"the plugin failed: {problem}", fix)


class _Node(dict[str, object]):
    """A mapping in the form that the library's plugin runner wants."""

    def safe_get(self, key: str) -> object:
        """The value, None if there is none."""
        return self.get(key)


class _Cluster:
    """The cluster in the form that the library's plugin runner wants: plugins that ask for it get ``value``."""

    def __init__(self, cluster: Mapping[str, object]) -> None:
        self.value = dict(cluster)


def basic(name: str, password: str) -> str:
    """The header's value for a name and a password."""
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode("ascii")


@dataclass(frozen=True, slots=True)
class Access:
    """Everything that a client needs to reach the API server.

    ``server``: ``https://host:port``, possibly with a path, without a slash at its end. ``origin``: where this was
    read, for people. ``ca``: path of a PEM file, None for the system's. ``server_name``: the name to expect in the
    certificate if it is not the host's. ``proxy``: a URL, None for the environment's. ``namespace``: the default
    namespace, empty if there is none.
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
    """Whether this process runs in a pod with a service account's token."""
    return bool(environment.get(HOST)) and (folder / "token").exists()


def in_cluster(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access:
    """Access by a pod's service account; raises ``ConfigurationError``."""
    host, port = environment.get(HOST, ""), environment.get(PORT, "")
    for name, value in ((HOST, host), (PORT, port)):
        if not value:
            raise ConfigurationError("environment", name, "is not set", "run in a pod, or give a kubeconfig")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigurationError(
            "environment", PORT, f"is {port!r}, which is not a port", "give a number from 1 to 65535"
        )
    token = TokenFile(folder / "token", str(folder), "token")
    token.current()
    ca = folder / "ca.crt"
    check_authority(str(ca), str(folder), "ca.crt")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        namespace = read_small(folder / "namespace").decode().strip()
    except (OSError, ValueError):
        # Callers that name a namespace do not need it.
        namespace = ""
    return Access(server, f"service account in {folder}", token, ca=str(ca), namespace=namespace)


def check_authority(path: str, source: str, field: str) -> None:
    """Raise ``ConfigurationError`` unless ``path`` holds certificates that can verify a server."""
    fix = "give a PEM file with the cluster's CA certificate"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise ConfigurationError(
            source, field, f"contains no certificate in PEM form ({reason_of(error)})", fix
        ) from error
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror or error})"
        raise ConfigurationError(source, field, problem, fix) from error


def check_certificate(pair: Certificate, source: str, field: str) -> None:
    """Raise ``ConfigurationError`` unless certificate and key can be used together."""
    try:
        # OpenSSL would ask for a password on the terminal, and wait for ever without one.
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
