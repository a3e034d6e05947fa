"""A real CA with certificates by openssl: for the server, and for a client."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KeyPair:
    certificate: Path
    key: Path


class Authority:
    def __init__(self, folder: Path, name: str = "cluster") -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / f"{name}-ca.crt"
        self._key = folder / f"{name}-ca.key"
        _openssl(
            "req", "-x509", *_NEW, "-keyout", self._key, "-out", self.certificate, "-subj", f"/CN={name}", "-days", "2",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip

    def server(self, name: str = "server", hosts: str = "IP:127.0.0.1,DNS:localhost") -> KeyPair:
        return self._issued(name, f"subjectAltName={hosts}", "serverAuth")

    def client(self, name: str) -> KeyPair:
        return self._issued(name, f"subjectAltName=DNS:{name}", "clientAuth")

    def _issued(self, name: str, names: str, use: str) -> KeyPair:
        pair = KeyPair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        _openssl(
            "req", "-x509", *_NEW, "-keyout", pair.key, "-out", pair.certificate, "-subj", f"/CN={name}", "-days", "2",
            "-CA", self.certificate, "-CAkey", self._key, "-addext", names, "-addext", f"extendedKeyUsage={use}",
            "-addext", "basicConstraints=critical,CA:FALSE",
        )  # fmt: skip
        return pair


_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=240)
