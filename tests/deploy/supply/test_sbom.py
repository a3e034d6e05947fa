"""The lists of what wheel and image are made of: whole, by CycloneDX's schema, and of what is really there."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.image.lock import runtime_subset
from deploy.sbom import ROOT, main
from ostler import __version__

pytestmark = pytest.mark.timeout(900)  # checking a list by its schema takes seconds of a free core

SITE = "opt/ostler/lib/python3.11/site-packages"
STATUS = "var/lib/dpkg/status.d"
PACKAGE = "Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nWhat it is.\nName: other\n"
LIBC = "Package: libc6\nArchitecture: amd64\nVersion: 2.36-9+deb12u1\n"
FILES: dict[str, str] = {
    f"{SITE}/grpcio-1.85.1.dist-info/METADATA": PACKAGE.format(name="grpcio", version="1.85.1"),
    f"{SITE}/grpcio-1.85.1.dist-info/vendored/more.dist-info/METADATA": PACKAGE.format(name="not-it", version="1"),
    f"{SITE}/pyyaml-6.0.dist-info/METADATA": PACKAGE.format(name="PyYAML", version="6.0"),
    "opt/ostler/pyvenv.cfg": "home = /usr/local/bin\nversion = 3.11.7\n",
    "etc/os-release": 'ID=debian\nVERSION_ID="12"\n',
    f"{STATUS}/libc6": LIBC,
    f"{STATUS}/libc6.md5sums": "0  usr/lib/libc.so.6\n",
}


def layer(files: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as inner:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            inner.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()


def archive(path: Path, *layers: Mapping[str, str]) -> Path:
    """An OCI archive with these layers, the later ones over the earlier ones."""
    blobs: dict[str, bytes] = {f"{number}" * 64: layer(files) for number, files in enumerate(layers)}
    entries = [{"digest": f"sha256:{name}"} for name in blobs]
    blobs["c" * 64] = json.dumps({"config": {"Labels": {"org.opencontainers.image.version": "1.2.3"}}}).encode()
    blobs["d" * 64] = json.dumps({"config": {"digest": f"sha256:{'c' * 64}"}, "layers": entries}).encode()
    with tarfile.open(path, "w") as outer:
        index = json.dumps({"manifests": [{"digest": f"sha256:{'d' * 64}"}]}).encode()
        for name, content in {"index.json": index, **{f"blobs/sha256/{name}": blobs[name] for name in blobs}}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            outer.addfile(member, io.BytesIO(content))
    return path


def listed(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    return document


def test_the_wheels_list_has_what_is_installed_with_it_and_by_which_hashes(tmp_path: Path) -> None:
    assert main(["wheel", "--to", str(tmp_path)]) == 0
    document = listed(tmp_path / "ostler-wheel.cdx.json")
    root = document["metadata"]["component"]
    assert (root["name"], root["version"], root["type"]) == ("ostler", __version__, "application")
    lock = runtime_subset((ROOT / "requirements.lock").read_text())
    expected = {f"pkg:pypi/{name}@{version}" for name, version in re.findall(r"(?m)^([a-z0-9-]+)==(\S+)", lock)}
    assert {component["purl"] for component in document["components"]} == expected
    hashes = {each["content"] for part in document["components"] for each in part["externalReferences"][0]["hashes"]}
    assert hashes == set(re.findall(r"--hash=sha256:([0-9a-f]{64})", lock))


def test_the_images_list_has_its_python_and_debian_packages_and_its_interpreter(tmp_path: Path) -> None:
    path = archive(tmp_path / "image.tar", FILES)
    # A process of its own: the schema has the format of IRIs, which tests/conftest.py keeps out of workers.
    command = [sys.executable, "-m", "deploy.sbom", "image", "--to", str(tmp_path), "--archive", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=240, cwd=ROOT)
    document = listed(tmp_path / "ostler-image.cdx.json")
    image = document["metadata"]["component"]
    assert (image["name"], image["type"], image["version"]) == ("ostler", "container", "1.2.3")
    assert image["purl"] == f"pkg:oci/ostler@sha256:{'d' * 64}"
    found = {component["purl"] for component in document["components"]}
    assert found == {
        "pkg:pypi/grpcio@1.85.1",
        "pkg:pypi/pyyaml@6.0",
        "pkg:generic/python@3.11.7",
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64&distro=debian-12",
    }
    (root,) = [each for each in document["dependencies"] if each["ref"] == image["bom-ref"]]
    assert set(root["dependsOn"]) == found


def test_of_two_layers_the_later_one_counts(tmp_path: Path) -> None:
    newer = {f"{STATUS}/libc6": LIBC.replace("2.36", "2.41")}
    path = archive(tmp_path / "image.tar", FILES, newer)
    assert main(["image", "--to", str(tmp_path), "--archive", str(path)]) == 0
    assert "2.41-9" in (tmp_path / "ostler-image.cdx.json").read_text()
    assert "2.36-9" not in (tmp_path / "ostler-image.cdx.json").read_text()


def test_without_the_image_it_is_said_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "image.tar"
    assert main(["image", "--to", str(tmp_path), "--archive", str(missing)]) == 1
    assert capsys.readouterr().err == (
        f"deploy.sbom: {missing} is not there, so the image is not listed: run 'make image' first\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"nonsense", b""])
def test_what_is_no_image_is_refused(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(content)
    assert main(["image", "--to", str(tmp_path), "--archive", str(path)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"deploy.sbom: {path} is not an OCI archive of one image: ")
    assert told.endswith("; make it with 'make image'\n")
