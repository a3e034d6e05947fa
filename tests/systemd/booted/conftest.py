"""A booted machine with ostler installed, one per worker; the release is installed once and lies under all of them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from systemd.release import SOURCE
from tests.systemd.booted.machine import BootedMachine
from tests.systemd.booted.root import PYTHON, debian, made, wheels

CONFIG = """\
apiVersion: ostler.dev/v1alpha1
kind: Config
inventory: {recorded: /etc/ostler/node.yaml}
http: {address: "off"}
"""
"""A recorded node; no probes, because every machine has the host's network."""


@pytest.fixture(scope="session", autouse=True)
def prerequisites() -> None:
    """Root, and Debian's packages systemd-container and debootstrap."""
    missing = [tool for tool in ("systemd-nspawn", "debootstrap", "nsenter", "setpriv") if shutil.which(tool) is None]
    if os.geteuid() != 0:
        missing.append("root rights")
    if not Path(PYTHON).exists():
        missing.append(PYTHON)
    if missing:
        pytest.skip(f"missing: {', '.join(missing)} (apt-get install systemd-container debootstrap, and run as root)")


@pytest.fixture(scope="session")
def release(prerequisites: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which ``make install DESTDIR=`` went; all workers of a run share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "systemd-release"
    with (shared / "systemd-release.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            (folder / "root").mkdir(parents=True)
            environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels())}
            command = ["make", "--no-print-directory", "install", f"DESTDIR={folder / 'root'}", f"PYTHON={PYTHON}"]
            command.append(f"--directory={SOURCE}")
            made(command, "the installation", environment)
            (folder / "done").touch()
    return folder / "root"


@pytest.fixture
def machine_dir() -> Iterator[Path]:
    """A folder with a short path, because the kubelet's sockets are reached through it."""
    path = Path(tempfile.mkdtemp(prefix="osd-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def booted(release: Path) -> Iterator[BootedMachine]:
    """A machine that runs, with ostler installed and a recorded node configured; the service is not started."""
    with BootedMachine(Path(tempfile.mkdtemp(prefix="osd-", dir="/tmp")), [release, debian()]) as machine:
        node = SOURCE / "sandbox/nodes/h100-sxm-8.yaml"
        shutil.copy(node, machine.root / "etc/ostler/node.yaml")
        yield machine


@pytest.fixture
def machine(booted: BootedMachine) -> Iterator[BootedMachine]:
    """The machine with the service stopped and everything as after the installation."""
    config = booted.root / "etc/ostler/config.yaml"
    config.write_text(CONFIG)
    yield booted
    booted.run("systemctl", "stop", "ostler", check=False)
    booted.run("sh", "-c", "rm -rf /etc/systemd/system/ostler.service.d /var/lib/kubelet /run/cdi /var/lib/ostler")
    booted.run("systemctl", "daemon-reload")
    booted.run("systemctl", "reset-failed", "ostler", check=False)
