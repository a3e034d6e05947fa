"""Images without a registry or a build tool: one layer with a static busybox, as an OCI archive."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
PAUSE = "local/pause:1"
BOX = "local/box:1"


def archives(folder: Path) -> list[Path]:
    """The images every cluster has: ``local/pause:1``, which only sleeps, and ``local/box:1`` with a shell."""
    links = _applets()
    made = []
    for name, command in ((PAUSE, ["/bin/sleep", "2147483647"]), (BOX, ["/bin/sh"])):
        path = folder / f"{name.replace('/', '-').replace(':', '-')}.tar"
        path.write_bytes(_archive(name, _layer(links), command))
        made.append(path)
    return made


def _applets() -> list[str]:
    return subprocess.run([BUSYBOX, "--list"], check=True, capture_output=True, text=True).stdout.split()


def _layer(links: list[str]) -> bytes:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        entry = tarfile.TarInfo("bin/busybox")
        entry.mode, entry.size = 0o755, BUSYBOX.stat().st_size
        with BUSYBOX.open("rb") as content:
            archive.addfile(entry, content)
        for name in links:
            if name != "busybox":
                entry = tarfile.TarInfo(f"bin/{name}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(entry)
    return layer.getvalue()


def _archive(name: str, layer: bytes, command: list[str]) -> bytes:
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    def document(content: dict[str, object], kind: str) -> dict[str, object]:
        return blob(json.dumps(content).encode(), kind)

    tar = blob(layer, "layer.v1.tar")
    config = document(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [tar["digest"]]},
        },
        "config.v1+json",
    )
    manifest = document({"schemaVersion": 2, "config": config, "layers": [tar]}, "manifest.v1+json")
    manifest["annotations"] = {"io.containerd.image.name": f"docker.io/{name}"}
    index = json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode()
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": index,
        **{f"blobs/sha256/{digest}": content for digest, content in blobs.items()},
    }
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return result.getvalue()
