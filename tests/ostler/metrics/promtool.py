"""Prometheus' own checker, from Debian's package: unpacked into the cache folder, nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.making.cache import cached

PACKAGE = "prometheus"


@cache
def promtool() -> Path:
    """The binary: of the system where it is there, else of Debian's package; skips where neither can be had."""
    found = shutil.which("promtool")
    if found:
        return Path(found)
    version = _debian("apt-cache", "policy", PACKAGE).partition("Candidate: ")[2].partition("\n")[0]
    if not version or version == "(none)":
        pytest.skip(f"needs promtool: Debian's package {PACKAGE} is not known here (apt-get update)")
    return cached(f"promtool-{version}".replace(":", "_"), _unpack) / "usr/bin/promtool"


def run(*arguments: str | Path, standard_input: bytes = b"") -> tuple[int, str]:
    """Exit code and everything that it says."""
    done = subprocess.run([promtool(), *arguments], check=False, input=standard_input, capture_output=True, timeout=240)
    return done.returncode, (done.stdout + done.stderr).decode()


def _unpack(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ostler-promtool-") as name:
        # apt-get leaves the folder to another user who must be able to write there.
        Path(name).chmod(0o777)
        _debian("apt-get", "download", "-qq", PACKAGE, folder=name)
        (package,) = Path(name).glob("*.deb")
        whole = Path(name) / "whole"
        _debian("dpkg-deb", "-x", str(package), str(whole))
        (folder / "usr/bin").mkdir(parents=True)
        shutil.copy2(whole / "usr/bin/promtool", folder / "usr/bin/promtool")


def _debian(*command: str, folder: str = "/") -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    except FileNotFoundError:
        pytest.skip(f"needs promtool: no promtool here and no {command[0]} to get Debian's package with")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"needs promtool: {' '.join(command)} failed: {error.stderr.strip()}")
    return done.stdout
