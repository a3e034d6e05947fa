"""TLS of the extender's port: its certificate, and which clients it knows. The files are read again when they change.

Invariant: a connection is served only with the last set of files that was usable. Files that a rotation has written
in part do not end the service: the old context stays, and the fault is logged once for each state of the files.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube.access import reason_of

log = logging.getLogger("ostler.extender")

_State = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. ``client_ca``: signs the clients' certificates. ``client_names``: common names, none for any."""

    certificate: Path
    key: Path
    client_ca: Path
    client_names: frozenset[str] = frozenset()


class TlsError(Exception):
    """The files cannot be used; the message names the option and the fix."""


class TlsContexts:
    """Gives each new connection a context made of the files as they are now. Thread-safe."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files; raises ``TlsError``."""
        self._files = files
        self._lock = threading.Lock()
        self._state = self._look()
        self._context = _context(files)

    @property
    def client_names(self) -> Collection[str]:
        """Common names of clients that may ask; empty for every client with a certificate of the CA."""
        return self._files.client_names

    def current(self) -> ssl.SSLContext:
        """The context for the next connection."""
        with self._lock:
            state = self._look()
            if state != self._state:
                self._state = state
                try:
                    self._context = _context(self._files)
                except TlsError as error:
                    log.warning(
                        "the new TLS files are not usable, the old ones stay in use", extra={"error": str(error)}
                    )
                else:
                    log.info("TLS files read again", extra={"certificate": str(self._files.certificate)})
            return self._context

    def _look(self) -> _State:
        return tuple(_stat(path) for path in (self._files.certificate, self._files.key, self._files.client_ca))


def common_name(connection: ssl.SSLSocket) -> str:
    """The common name of the client's certificate, empty if it has none."""
    subject: Any = (connection.getpeercert() or {}).get("subject", ())
    for group in subject:
        for name, value in group:
            if name == "commonName":
                return str(value)
    return ""


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    for option, path in (
        ("--tls-cert", files.certificate),
        ("--tls-key", files.key),
        ("--tls-client-ca", files.client_ca),
    ):
        if not path.is_file():
            raise TlsError(f"{option}: {path} is not a file; give a PEM file")
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (ssl.SSLError, OSError, _Encrypted) as error:
        raise TlsError(
            f"--tls-cert, --tls-key: {files.certificate} and {files.key} are not usable together ({_reason(error)}); "
            "give a certificate and its key without a password, both in PEM form"
        ) from error
    try:
        context.load_verify_locations(cafile=files.client_ca)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(
            f"--tls-client-ca: {files.client_ca} contains no certificate in PEM form ({_reason(error)}); "
            "give the CA certificate that signs the scheduler's client certificate"
        ) from error
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return reason_of(error)
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


class _Encrypted(Exception):
    def __str__(self) -> str:
        return "the key has a password"


def _no_password() -> str:
    raise _Encrypted
