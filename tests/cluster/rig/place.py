"""Where a cluster lives: its number, the addresses and the folder that follow from it.

Every cluster has addresses of its own on the loopback interface, so that each component listens on its default port
and two clusters on one machine never meet. Taking a number is one ``mkdir``, which only one process can win.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.rig.processes import wait_until

LARGEST = 250
INOTIFY_INSTANCES = 1024
PREFIX = "ostler-cluster-"
RUN = "test-"
"""How the names of test runs' clusters begin."""


class NoPlace(Exception):
    """No number is free."""


@dataclass(frozen=True, slots=True)
class RigPlace:
    """The numbers, names and addresses of cluster ``number`` (1 to 250)."""

    number: int

    @property
    def root(self) -> Path:
        """The cluster's folder; short, because sockets below it may have 107 bytes."""
        return Path("/tmp") / f"{PREFIX}{self.number}"

    @property
    def name(self) -> str:
        """What people call the cluster."""
        with contextlib.suppress(OSError):
            return (self.root / "name").read_text()
        return ""

    @property
    def api(self) -> str:
        """Address of the API server, which is also its ClusterIP: pods reach it without kube-proxy."""
        return f"10.96.{self.number}.1"

    @property
    def services(self) -> str:
        """Range of the ClusterIPs."""
        return f"10.96.{self.number}.0/24"

    @property
    def control(self) -> str:
        """Address of etcd, controllers and scheduler."""
        return f"10.97.{self.number}.1"

    def node_address(self, index: int) -> str:
        """Address of a node's kubelet; ``index`` counts from 0."""
        return f"10.97.{self.number}.{101 + index}"

    def pods(self, index: int) -> str:
        """Range of the pods' addresses on a node."""
        return f"10.{128 + index}.{self.number}.0/24"

    @property
    def log_folder(self) -> Path:
        """One file per component."""
        return self.root / "logs"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.root / "admin.kubeconfig"


def places() -> list[RigPlace]:
    """Every cluster that has a folder, running or not."""
    numbers = (entry.name.removeprefix(PREFIX) for entry in Path("/tmp").glob(f"{PREFIX}*"))
    return [RigPlace(number) for number in sorted(int(number) for number in numbers if number.isdigit())]


def orphans() -> list[RigPlace]:
    """Clusters of test runs that are dead: a name ends with the process id of its run, a person's does not."""
    return [place for place in places() if _owner(place.name) and not Path(f"/proc/{_owner(place.name)}").exists()]


def _owner(name: str) -> int:
    last = name.rpartition("-")[2]
    return int(last) if name.startswith(RUN) and last.isdigit() else 0


def place_of(name: str) -> RigPlace | None:
    """The place of the cluster with this name."""
    return next((place for place in places() if place.name == name), None)


def name_of_run() -> str:
    """The name of this test process' cluster."""
    return f"{RUN}{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{os.getpid()}"


def take_place(name: str) -> RigPlace:
    """A place that nobody has; raises ``NoPlace``. The second cluster of one name is the caller's to prevent."""
    for number in range(1, LARGEST + 1):
        place = RigPlace(number)
        with contextlib.suppress(FileExistsError):
            place.root.mkdir(mode=0o755)
            (place.root / "name").write_text(name)
            place.log_folder.mkdir()
            return place
    raise NoPlace(f"all of {LARGEST} clusters exist; see /tmp/{PREFIX}*, and end them with 'make cluster-down'")


def leave_place(place: RigPlace) -> None:
    """Give the number back: addresses, routes to pods and folder are gone afterwards."""
    # The kernel takes a network namespace down, and the routes into it, some time after its last process.
    wait_until(f"routes to the pods of {place.root} are gone", lambda: not _routes(place))
    for address in addresses(place):
        subprocess.run(
            ["ip", "address", "delete", f"{address}/32", "dev", "lo"], check=False, stderr=subprocess.DEVNULL
        )
    shutil.rmtree(place.root)


def add_address(address: str) -> None:
    """Put an address on the loopback interface; it may be there."""
    done = subprocess.run(
        ["ip", "address", "replace", f"{address}/32", "dev", "lo"], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise OSError(f"address {address} cannot be added to lo: {done.stderr.strip()}")


def addresses(place: RigPlace) -> list[str]:
    """The cluster's addresses that are on the loopback interface now."""
    shown = subprocess.run(
        ["ip", "-o", "-4", "address", "show", "dev", "lo"], check=True, capture_output=True, text=True
    )
    ours = (f"10.96.{place.number}.", f"10.97.{place.number}.")
    words = (word for line in shown.stdout.splitlines() for word in line.split())
    return [word.partition("/")[0] for word in words if word.startswith(ours)]


def _routes(place: RigPlace) -> list[str]:
    """The routes to the cluster's pods that the machine has now, one for each."""
    shown = subprocess.run(["ip", "-4", "route", "show"], check=True, capture_output=True, text=True)
    pods = re.compile(rf"10\.(12[89]|1[3-9]\d|2\d\d)\.{place.number}\.\d+ dev veth")
    return [line for line in shown.stdout.splitlines() if pods.match(line)]


def allow_forwarding() -> None:
    """Pods of different nodes and the API server reach each other by the host's routes."""
    switch = Path("/proc/sys/net/ipv4/ip_forward")
    if switch.read_text().strip() != "1" and os.access(switch, os.W_OK):
        switch.write_text("1")


def allow_watches() -> None:
    """Kubelet, runtime and agent of a node have a dozen inotify instances; the kernel allows 128 by default."""
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    if int(limit.read_text()) < INOTIFY_INSTANCES and os.access(limit, os.W_OK):
        limit.write_text(str(INOTIFY_INSTANCES))
