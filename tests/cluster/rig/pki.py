"""The cluster's certificates and kubeconfigs, made with openssl: one authority, a pair per identity."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

from tests.cluster.rig.place import RigPlace

YEAR = "365"


def openssl(*arguments: str | Path, text: str | None = None) -> None:
    """Run openssl; a failure carries its words."""
    done = subprocess.run(
        ["openssl", *map(str, arguments)], check=False, capture_output=True, text=True, input=text, timeout=120
    )
    if done.returncode:
        raise OSError(f"openssl {arguments[0]}: {done.stderr.strip()}")


class RigAuthority:
    """Makes pairs in ``folder``: NAME.crt and NAME.key. Elliptic keys, because they cost milliseconds."""

    def __init__(self, place: RigPlace) -> None:
        self._place = place
        self.folder = place.root / "pki"

    @property
    def certificate(self) -> Path:
        """What clients verify the API server with."""
        return self.folder / "ca.crt"

    def create(self) -> None:
        """The authority, the API server's own pair, and the key that signs service accounts' tokens."""
        self.folder.mkdir()
        key = self._key("ca")
        openssl(
            "req", "-x509", "-new", "-key", key, "-days", YEAR, "-subj", "/CN=ostler-tests", "-out", self.certificate
        )
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
        addresses = (self._place.api, "127.0.0.1")
        alternatives = ",".join([*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)])
        self.pair("apiserver", "/CN=kube-apiserver", f"subjectAltName={alternatives}")
        self.pair("kubelet-client", "/O=system:masters/CN=apiserver-kubelet-client")
        key = self._key("service-accounts")
        openssl("pkey", "-in", key, "-pubout", "-out", self.folder / "service-accounts.pub")

    def pair(self, name: str, subject: str, extension: str = "") -> None:
        """A key and a certificate for ``subject`` (openssl's form, ``/O=group/CN=user``)."""
        key = self._key(name)
        request = self.folder / f"{name}.csr"
        openssl("req", "-new", "-key", key, "-subj", subject, "-out", request)
        more: list[str | Path] = []
        if extension:
            file = self.folder / f"{name}.ext"
            file.write_text(extension + "\n")
            more = ["-extfile", file]
        openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.folder / "ca.key",
            "-CAcreateserial", "-days", YEAR, "-out", self.folder / f"{name}.crt", *more,
        )  # fmt: skip

    def kubeconfig(self, name: str, subject: str, path: Path) -> Path:
        """A kubeconfig (JSON, everything inside) for a new identity."""
        self.pair(name, subject)
        path.write_text(
            self.document(
                {
                    "client-certificate-data": _encoded(self.folder / f"{name}.crt"),
                    "client-key-data": _encoded(self.folder / f"{name}.key"),
                }
            )
        )
        path.chmod(0o600)
        return path

    def document(self, user: dict[str, str]) -> str:
        """A kubeconfig's text for credentials as kubeconfig names them."""
        cluster = {"server": f"https://{self._place.api}", "certificate-authority-data": _encoded(self.certificate)}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "ostler",
                "clusters": [{"name": "ostler", "cluster": cluster}],
                "users": [{"name": "ostler", "user": user}],
                "contexts": [{"name": "ostler", "context": {"cluster": "ostler", "user": "ostler"}}],
            }
        )

    def _key(self, name: str) -> Path:
        path = self.folder / f"{name}.key"
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
        return path


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
