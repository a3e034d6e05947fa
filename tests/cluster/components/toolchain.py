"""The Go toolchain: the machine's own where it is new enough, else a pinned one fetched like any Go module.

The toolchain comes through the module proxy as a zip whose hash is pinned here, so that a machine needs no Go to begin
with and trusts nothing but the hash.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

from tests.making.cache import cached

VERSION = "1.26.8"
"""What is fetched where there is none, or an older one."""
HASHES = {
    "amd64": "30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7",
    "arm64": "02b36b6787b3ac767668f630e2998df45a3b1f9ffee08d1bf3ef6487cd658d99",
}
"""SHA-256 of the zip by Go's name of the processor."""
PROXY = "https://proxy.golang.org"


class ToolchainMissing(Exception):
    """There is no Go that can be used, and none could be fetched."""


def go_command() -> str:
    """Path of a ``go`` that is at least ``VERSION``; raises ``ToolchainMissing``."""
    found = shutil.which("go")
    if found and _version(found) >= _numbers(VERSION):
        return found
    folder = cached(f"go-{VERSION}-{_processor()}", _fetch)
    return str(folder / "bin" / "go")


def _version(go: str) -> tuple[int, ...]:
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GOTOOLCHAIN": "local"},
    )
    return _numbers(answer.stdout.strip().removeprefix("go"))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _processor() -> str:
    machine = platform.machine()
    name = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine)
    if name is None:
        raise ToolchainMissing(
            f"no Go {VERSION} is pinned for the processor {machine!r}; install Go {VERSION} or newer"
        )
    return name


def _fetch(folder: Path) -> None:
    processor = _processor()
    module = f"v0.0.1-go{VERSION}.linux-{processor}"
    proxies = [proxy for proxy in re.split("[,|]", os.environ.get("GOPROXY", "")) if proxy.startswith("http")]
    url = f"{(proxies or [PROXY])[0].rstrip('/')}/golang.org/toolchain/@v/{module}.zip"
    sys.stderr.write(f"fetching Go {VERSION} ...\n")
    archive = folder / "go.zip"
    try:
        with urllib.request.urlopen(url, timeout=300) as answer, archive.open("wb") as file:
            shutil.copyfileobj(answer, file)
    except OSError as error:
        raise ToolchainMissing(
            f"Go {VERSION} or newer is needed to build the cluster's components, and it could not be fetched from "
            f"{url}: {error}; install it, or set GOPROXY"
        ) from error
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != HASHES[processor]:
        raise ToolchainMissing(f"{url} is not the Go that is pinned: its SHA-256 is {found}, not {HASHES[processor]}")
    _unpack(archive, f"golang.org/toolchain@{module}/", folder)
    archive.unlink()


def _unpack(archive: Path, prefix: str, folder: Path) -> None:
    """A module's zip carries no modes; what Go runs itself is made executable."""
    with zipfile.ZipFile(archive) as content:
        for member in content.infolist():
            target = folder / member.filename.removeprefix(prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            with content.open(member) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)
            if target.parent.name == "bin" or "pkg/tool" in str(target):
                target.chmod(0o755)
