"""What the unit takes away is taken away, seen from where the service runs."""

from __future__ import annotations

import pytest

from tests.systemd.booted.machine import BootedMachine
from tests.waiting import eventually

pytestmark = [pytest.mark.needs_root, pytest.mark.timeout(1800)]

READ_ONLY = "Read-only file system"


@pytest.fixture
def running(machine: BootedMachine) -> BootedMachine:
    """The service, running."""
    machine.run("systemctl", "start", "ostler")
    return machine


def _status(machine: BootedMachine) -> dict[str, str]:
    lines = machine.run("cat", f"/proc/{machine.pid()}/status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_it_is_root_without_any_of_roots_powers(running: BootedMachine) -> None:
    status = _status(running)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["Uid"].split() == ["0"] * 4
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize(
    "path",
    ["/usr/x", "/etc/x", "/opt/ostler/current/x", "/run/x", "/var/x", "/boot/x", "/proc/sys/kernel/core_pattern"],
)
def test_nothing_else_can_be_written(running: BootedMachine, path: str) -> None:
    assert READ_ONLY in running.inside(f"echo > {path}")


@pytest.mark.parametrize(
    "folder", ["/var/lib/kubelet/device-plugins", "/var/lib/kubelet/plugins_registry", "/run/cdi", "/run/ostler"]
)
def test_what_it_must_write_it_can(running: BootedMachine, folder: str) -> None:
    assert running.inside(f"touch {folder}/x && rm {folder}/x") == ""


def test_folders_of_the_kubelet_that_are_made_anew_can_be_written(running: BootedMachine) -> None:
    running.run("sh", "-c", "cd /var/lib/kubelet && rm -r device-plugins && mkdir device-plugins")
    assert running.inside("touch /var/lib/kubelet/device-plugins/x") == ""


def test_other_peoples_secrets_are_out_of_sight(machine: BootedMachine) -> None:
    kubelet = "/var/lib/kubelet"
    machine.run("sh", "-c", f"mkdir -p {kubelet}/pods/p {kubelet}/pki && touch /root/x {kubelet}/pki/key")
    machine.run("systemctl", "start", "ostler")
    assert "Permission denied" in machine.inside(f"ls {kubelet}/pods/p")
    assert READ_ONLY in machine.inside(f"echo > {kubelet}/pki/key")
    assert machine.inside(f"cat {kubelet}/pki/key") == ""
    assert "x" not in machine.inside("ls /root").split()


def test_the_kernels_files_that_name_devices_are_in_sight(running: BootedMachine) -> None:
    assert running.inside("ls -d /proc/driver /proc/devices /proc/sys/kernel/random/boot_id").split() == [
        "/proc/devices",
        "/proc/driver",
        "/proc/sys/kernel/random/boot_id",
    ]


@pytest.mark.parametrize(
    ("node", "numbers", "refusal"),
    [
        ("disk", "b 8 0", "Operation not permitted"),
        ("kmsg", "c 1 11", "Operation not permitted"),
        ("fuse", "c 10 229", "Operation not permitted"),
        # Allowed, and no driver behind it here: without the number in the unit, the name would not be known either.
        ("nvidiactl", "c 195 255", "No such device or address"),
        ("nvidia0", "c 195 0", "No such device or address"),
    ],
)
def test_only_nvidias_devices_can_be_opened(running: BootedMachine, node: str, numbers: str, refusal: str) -> None:
    running.run("sh", "-c", f"rm -f /dev/test-{node}; mknod -m 0666 /dev/test-{node} {numbers}")
    assert refusal in running.inside(f": < /dev/test-{node}")


async def test_real_hardware_is_watched_with_the_sandbox_in_force(machine: BootedMachine) -> None:
    config = machine.root / "etc/ostler/config.yaml"
    config.write_text(config.read_text().replace("inventory: {recorded: /etc/ostler/node.yaml}\n", ""))
    machine.run("systemctl", "start", "ostler")
    wanted = ("sysfs", "network", "events")

    def is_watched() -> bool:
        status = machine.run("ostler", "status", check=False)
        return all(name in status for name in wanted) and "polling" not in status

    await eventually(is_watched, "everything is watched, and nothing polled")
