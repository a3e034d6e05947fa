"""The components of the wheel and the image, as CycloneDX: ``python -m deploy.sbom wheel``, ``... image``.

The wheel's list is made by cyclonedx-py from the lock file's runtime part: what is installed with ostler, with hashes.
The image's list is read from the image itself, so it has what is there and not what should be: Python packages by
their own metadata, the Debian packages that files were copied from (``deploy.image.debian``), and the interpreter. Both
are checked against CycloneDX's schema before they are written.
"""

from __future__ import annotations

import argparse
import email
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from deploy.image.debian import RELEASE, STATUS
from deploy.image.lock import LockFileError, runtime_subset

ROOT = Path(__file__).resolve().parent.parent
ARCHIVE = ROOT / "build" / "ostler-image.tar"
VERSION = SchemaVersion.V1_6
_PYTHON = re.compile(r"opt/ostler/lib/python3\.\d+/site-packages/[^/]+\.dist-info/METADATA")
_DEBIAN = re.compile(re.escape(STATUS) + r"/[^/]+(?<!\.md5sums)")
_ENVIRONMENT = "opt/ostler/pyvenv.cfg"
"""Which says the version of the interpreter."""


class SbomError(Exception):
    """The list of components cannot be made."""


def wheel_sbom(lock: str, target: Path) -> None:
    """Write the list of what is installed with the wheel; raises ``SbomError``, ``LockFileError``."""
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder, "runtime.lock")
        requirements.write_text(runtime_subset(lock), encoding="utf-8")
        command = [sys.executable, "-m", "cyclonedx_py", "requirements", str(requirements)]
        command += ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"]
        command += ["--output-reproducible", "--spec-version", VERSION.to_version(), "--output-file", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SbomError(f"cyclonedx-py made no list of the wheel: {done.stderr.strip()}")


def image_sbom(archive: Path, target: Path) -> None:
    """Write the list of what is in the image of an OCI archive; raises ``SbomError``."""
    try:
        with tarfile.open(archive) as outer:
            files, image = _read(outer)
    except (OSError, tarfile.TarError, KeyError, ValueError) as error:
        raise SbomError(f"{archive} is not an OCI archive of one image: {error}; make it with 'make image'") from error
    bom = Bom(components=[*_python_packages(files), *_debian_packages(files)])
    bom.metadata.component = image
    bom.register_dependency(image, bom.components)
    text = str(make_outputter(bom, OutputFormat.JSON, VERSION).output_as_string(indent=2))
    if (fault := JsonStrictValidator(VERSION).validate_str(text)) is not None:
        raise SbomError(f"the list of the image breaks CycloneDX's schema: {fault}")
    target.write_text(text + "\n", encoding="utf-8")


def _read(outer: tarfile.TarFile) -> tuple[dict[str, str], Component]:
    """The files that list packages, later layers over earlier ones, and the image itself by its digest."""
    (entry,) = _json(outer, "index.json")["manifests"]
    manifest = _json(outer, _blob(entry))
    labels: Mapping[str, str] = _json(outer, _blob(manifest["config"]))["config"].get("Labels", {})
    files: dict[str, str] = {}
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=_open(outer, _blob(layer)), mode="r:*") as inner:
            for member in inner:
                path = member.name.removeprefix("./").strip("/")
                if not _tells(path):
                    continue
                if member.isfile() and (content := inner.extractfile(member)) is not None:
                    files[path] = content.read().decode("utf-8", "replace")
    version = labels.get("org.opencontainers.image.version") or None
    purl = PackageURL("oci", None, "ostler", entry["digest"])
    return files, Component(name="ostler", version=version, type=ComponentType.CONTAINER, purl=purl, bom_ref=str(purl))


def _tells(path: str) -> bool:
    return path in {_ENVIRONMENT, RELEASE} or any(each.fullmatch(path) for each in (_PYTHON, _DEBIAN))


def _python_packages(files: Mapping[str, str]) -> Iterator[Component]:
    settings = dict(_pairs(files.get(_ENVIRONMENT, ""), " = "))
    if version := settings.get("version"):
        purl = PackageURL("generic", None, "python", version)
        yield Component(name="python", version=version, type=ComponentType.PLATFORM, purl=purl, bom_ref=str(purl))
    for path, text in sorted(files.items()):
        if _PYTHON.fullmatch(path):
            headers = email.message_from_string(text)
            name = re.sub(r"[-_.]+", "-", headers["Name"]).lower()
            yield _library(PackageURL("pypi", None, name, headers["Version"]))


def _debian_packages(files: Mapping[str, str]) -> Iterator[Component]:
    release = {name: value.strip('"') for name, value in _pairs(files.get(RELEASE, ""), "=")}
    distribution = release.get("ID", "debian")
    for path, text in sorted(files.items()):
        if _DEBIAN.fullmatch(path):
            fields = email.message_from_string(text)
            qualifiers = {"arch": fields["Architecture"], "distro": f"{distribution}-{release.get('VERSION_ID', '')}"}
            yield _library(PackageURL("deb", distribution, fields["Package"], fields["Version"], qualifiers))


def _library(purl: PackageURL) -> Component:
    return Component(
        name=purl.name, version=purl.version, type=ComponentType.LIBRARY, purl=purl, bom_ref=purl.to_string()
    )


def _pairs(text: str, separator: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, found, value = line.partition(separator)
        if found:
            yield name, value


def _json(outer: tarfile.TarFile, name: str) -> Any:  # what JSON holds is not known before it is read
    return json.load(_open(outer, name))


def _open(outer: tarfile.TarFile, name: str) -> IO[bytes]:
    found = outer.extractfile(name)
    if found is None:
        raise KeyError(f"{name} is not a file")
    return found


def _blob(entry: Mapping[str, Any]) -> str:
    return "blobs/" + str(entry["digest"]).replace(":", "/", 1)


def main(words: Sequence[str] | None = None) -> int:
    """Run it; 1 when a list could not be made."""
    parser = argparse.ArgumentParser(prog="deploy.sbom", description="What wheel and image are made of (CycloneDX).")
    parser.add_argument("part", choices=("wheel", "image"))
    parser.add_argument("--archive", type=Path, default=ARCHIVE, metavar="FILE", help="of the image, by 'make image'")
    parser.add_argument(
        "--to", type=Path, default=ROOT / "build" / "sbom", metavar="FOLDER", help="default: build/sbom"
    )
    arguments = parser.parse_args(words)
    target = arguments.to / f"ostler-{arguments.part}.cdx.json"
    try:
        if arguments.part == "image":
            if not arguments.archive.exists():
                raise SbomError(f"{arguments.archive} is not there, so the image is not listed: run 'make image' first")
            arguments.to.mkdir(parents=True, exist_ok=True)
            image_sbom(arguments.archive, target)
        else:
            arguments.to.mkdir(parents=True, exist_ok=True)
            wheel_sbom((ROOT / "requirements.lock").read_text(encoding="utf-8"), target)
    except (SbomError, LockFileError) as error:
        print(f"deploy.sbom: {error}", file=sys.stderr)
        return 1
    print(f"{target} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
