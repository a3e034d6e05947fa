"""A cluster that crashed leaves nothing, and two on one machine do not meet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.cluster.rig.cluster import attach, down
from tests.cluster.rig.place import addresses, place_of
from tests.cluster.rig.pods import RigPods, simple
from tests.cluster.rig.processes import belonging, kill, wait_until

NAME = f"traces-{os.getpid()}"


def command(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "tests.cluster", *words, "--name", NAME],
        check=True, capture_output=True, text=True, timeout=300,
    ).stdout  # fmt: skip


def test_two_nodes_run_pods_that_reach_each_other_and_a_crash_leaves_no_trace() -> None:
    try:
        said = command("up", "--nodes", "2")
        assert "with node-1, node-2 is up" in said
        made = attach(NAME)
        assert made is not None
        root = made.place.root
        pods = RigPods(made.api)
        served = pods.run(simple("server", "echo hello > /tmp/index.html; httpd -f -p 8080 -h /tmp", nodeName="node-1"))
        address = served["status"]["podIP"]
        fetch = f"until wget -q -O- http://{address}:8080/; do :; done"
        assert pods.finish(simple("client", fetch, nodeName="node-2")) == "hello\n"

        # As bad as it gets: the files that say what runs are gone, and half of it was killed.
        (root / "state.json").unlink()
        kill(made.nodes[0].init, signal.SIGKILL)
        for pid in belonging(root)[::2]:
            kill(pid, signal.SIGKILL)
        assert command("down") == f"{NAME} is gone\n"
        assert not root.exists()
        assert belonging(root) == []
        assert addresses(made.place) == []
        assert list(Path("/sys/fs/cgroup").glob(f"*/{root.name}*")) == []
        assert str(root) not in Path("/proc/self/mounts").read_text()
        routes = subprocess.run(["ip", "route"], check=True, capture_output=True, text=True).stdout
        assert made.place.pods(0).removesuffix("0/24") not in routes
    finally:
        down(NAME)
    assert place_of(NAME) is None


def test_a_start_that_was_killed_in_the_middle_is_cleared_by_the_next() -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", "up", "--name", NAME], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        wait_until("half of it is there", lambda: (place := place_of(NAME)) is not None and bool(belonging(place.root)))
        started.kill()
        started.communicate()
        first = place_of(NAME)
        assert first is not None
        assert "is up after" in command("up")
        second = attach(NAME)
        assert second is not None
        assert second.api.items("/api/v1/nodes")[0]["metadata"]["name"] == "node-1"
    finally:
        down(NAME)
