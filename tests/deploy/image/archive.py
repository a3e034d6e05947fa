"""An OCI archive read without a tool: the image's configuration, its files as a container would see them, its size."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from tests.deploy.image.base import program


@dataclass(frozen=True, slots=True)
class Image:
    """``configuration`` is the OCI image configuration, ``files`` what lies at each path (without ``/`` before it).

    ``size``: bytes of the layers as a registry would send them.
    """

    name: str
    configuration: Mapping[str, Any]
    files: Mapping[str, tarfile.TarInfo]
    size: int

    @property
    def settings(self) -> Mapping[str, Any]:
        """What a container gets of it: user, environment, entry point, labels."""
        return cast("Mapping[str, Any]", self.configuration["config"])


def read_image(archive: Path) -> Image:
    """The one image in ``archive``."""
    with tarfile.open(archive) as outer:
        (entry,) = _json(outer, "index.json")["manifests"]
        manifest = _json(outer, _blob(entry))
        files: dict[str, tarfile.TarInfo] = {}
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=_open(outer, _blob(layer)), mode="r:*") as inner:
                files.update((member.name.removeprefix("./").strip("/"), member) for member in inner)
        size = sum(layer["size"] for layer in manifest["layers"])
        name = entry["annotations"]["org.opencontainers.image.ref.name"]
        return Image(name, _json(outer, _blob(manifest["config"])), files, size)


def unpack(archive: Path, target: Path) -> None:
    """Put the image's files into ``target`` as their owners; for root only."""
    with tarfile.open(archive) as outer:
        (entry,) = _json(outer, "index.json")["manifests"]
        for layer in _json(outer, _blob(entry))["layers"]:
            with tarfile.open(fileobj=_open(outer, _blob(layer)), mode="r:*") as inner:
                inner.extractall(target, filter="fully_trusted")


def run(image: Image, root: Path, *words: str, program_name: str = "") -> subprocess.CompletedProcess[str]:
    """Run the image's entry point (or ``program_name``) in the unpacked image as a container would.

    As its user, with its environment and no other, and with nothing on its file system to be written.
    """
    command = [program_name] if program_name else list(image.settings["Entrypoint"])
    user = f"--userspec={image.settings['User']}"
    inside = [str(program("chroot")), user, "--groups=", str(root), *command, *words]
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    return subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(root)),
            *("env", "-i", *image.settings["Env"], *inside),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def _json(outer: tarfile.TarFile, name: str) -> Any:  # what JSON holds is not known before it is read
    return json.load(_open(outer, name))


def _open(outer: tarfile.TarFile, name: str) -> IO[bytes]:
    found = outer.extractfile(name)
    assert found is not None, name
    return found


def _blob(entry: Mapping[str, Any]) -> str:
    return f"blobs/{entry['digest'].replace(':', '/')}"
