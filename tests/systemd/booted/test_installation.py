"""Installed, brought up to date and removed on a running machine, from a checkout and without a network."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from systemd.release import SOURCE, packages
from tests.systemd.booted.conftest import CONFIG
from tests.systemd.booted.machine import BootedMachine, BootedMachineError
from tests.systemd.booted.root import debian, wheels

pytestmark = [pytest.mark.needs_root, pytest.mark.timeout(1800)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what is installed, which a test may change."""
    folder = tmp_path / "checkout"
    _, names = packages(SOURCE)
    for source in (*names, SOURCE / "systemd", SOURCE / "deploy/image"):
        place = folder / source.relative_to(SOURCE)
        shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "requirements.lock", "LICENSE"):
        shutil.copy(SOURCE / name, folder / name)
    return folder


@pytest.fixture
def fresh(prerequisites: None, checkout: Path) -> Iterator[BootedMachine]:
    """A machine that has never seen ostler."""
    folder = Path(tempfile.mkdtemp(prefix="osd-", dir="/tmp"))
    with BootedMachine(folder, [debian()], {"/checkout": checkout, "/wheels": wheels()}) as machine:
        yield machine


def _install(machine: BootedMachine, wheels: str = "/wheels") -> str:
    environment = f"PIP_NO_INDEX=1 PIP_FIND_LINKS={wheels}"
    return machine.run("sh", "-c", f"{environment} /checkout/systemd/install.sh", errors=True)


def test_an_installation_lives_through_updates_and_goes_when_told(fresh: BootedMachine, checkout: Path) -> None:
    told = _install(fresh)
    assert "systemctl enable --now ostler" in told
    first = fresh.run("readlink", "/opt/ostler/current").strip()
    example = fresh.run("cat", "/etc/ostler/config.yaml")
    assert example == (SOURCE / "systemd/config.yaml").read_text()
    assert fresh.run("ostler", "config", "check", "/etc/ostler/config.yaml")

    shutil.copy(SOURCE / "sandbox/nodes/h100-sxm-8.yaml", fresh.root / "etc/ostler/node.yaml")
    (fresh.root / "etc/ostler/config.yaml").write_text(CONFIG)
    fresh.run("systemctl", "enable", "--now", "--quiet", "ostler")
    pid = fresh.pid()

    again = _install(fresh)
    assert "not restarted" in again
    assert fresh.pid() == pid
    assert fresh.run("cat", "/etc/ostler/config.yaml") == CONFIG

    version = checkout / "ostler/__init__.py"
    version.write_text(version.read_text().replace('"0.1.0"', '"0.1.1"'))
    assert "restarted with this version" in _install(fresh)
    assert fresh.pid() not in (0, pid)
    assert "0.1.1" in fresh.run("ostler", "--version")
    second = fresh.run("readlink", "/opt/ostler/current").strip()
    assert sorted(fresh.run("ls", "/opt/ostler/versions").split()) == sorted(
        Path(each).name for each in (first, second)
    )

    # Once more: the one before is still the way back.
    assert "not restarted" in _install(fresh)
    assert len(fresh.run("ls", "/opt/ostler/versions").split()) == 2

    with pytest.raises(
        BootedMachineError, match="runs and its unit is not in /usr/lib/systemd/system; give UNITDIR= as it"
    ):
        fresh.run("sh", "-c", "UNITDIR=/usr/lib/systemd/system /checkout/systemd/uninstall.sh", errors=True)
    (fresh.root / "opt/ostler/notes.txt").write_text("mine")
    with pytest.raises(BootedMachineError, match="is not as an installation leaves it and is not removed"):
        fresh.run("/checkout/systemd/uninstall.sh", errors=True)
    (fresh.root / "opt/ostler/notes.txt").unlink()
    assert fresh.pid() != 0, "what is refused stops nothing"

    unit = checkout / "systemd/ostler.service"
    unit.write_text(unit.read_text().replace("RestartSec=1", "RestartSec=2"))
    assert "restarted with this version" in _install(fresh)
    assert fresh.show("RestartUSec") == "2s"

    removed = fresh.run("/checkout/systemd/uninstall.sh", errors=True)
    assert fresh.pid() == 0
    for path in ("/opt/ostler", "/usr/local/bin/ostler", "/usr/local/lib/systemd/system/ostler.service"):
        assert f"removed   {path}" in removed
        assert not (fresh.root / path.lstrip("/")).exists()
    for path in ("/etc/ostler", "/var/lib/ostler"):
        assert f"kept      {path}" in removed
        assert (fresh.root / path.lstrip("/")).exists()
    links = fresh.run("find", "/etc/systemd/system", "-name", "*ostler*").split()
    assert links == []


def test_a_failed_installation_changes_nothing(fresh: BootedMachine) -> None:
    with pytest.raises(BootedMachineError, match="packages of the lock file could not be installed"):
        _install(fresh, wheels="/checkout")
    left = fresh.run("find", "/opt/ostler", "/usr/local/lib/systemd", "/usr/local/bin", "-type", "f", check=False)
    assert left.split() == []


def test_a_restart_is_short(booted: BootedMachine, machine: BootedMachine) -> None:
    began = time.monotonic()
    machine.run("systemctl", "start", "ostler")
    started = time.monotonic()
    machine.run("systemctl", "restart", "ostler")
    took = time.monotonic() - started
    assert machine.show("ActiveState") == "active"
    # Where starting alone takes seconds, the machine has much else to do.
    assert took < max(5, 5 * (started - began)), took


def test_nothing_is_left_of_a_machine(prerequisites: None) -> None:
    folder = Path(tempfile.mkdtemp(prefix="osd-", dir="/tmp"))
    with BootedMachine(folder, [debian()]) as machine:
        assert machine.run("systemctl", "is-system-running").strip() == "running"
    assert not folder.exists()
    assert folder.name not in Path("/proc/self/mountinfo").read_text()
    assert list(Path("/sys/fs/cgroup").glob(f"*/*{folder.name}*")) == []
