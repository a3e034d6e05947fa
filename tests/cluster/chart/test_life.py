"""Installed, updated, rolled back and removed, while pods use devices and go on using them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.chart.observation import Observation, longest_below
from tests.cluster.chart.release import NEXT, Release
from tests.cluster.rig.agent import wait_allocatable
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import devices_of
from tests.cluster.rig.pods import RigPods, simple
from tests.cluster.rig.processes import wait_until
from tests.deploy.image.build import NAME

pytestmark = pytest.mark.timeout(1200)  # the first test may have to build the image

GPU = "nvidia.com/gpu"
RECORDING = "h100-sxm-8"
CONFIG = {"apiVersion": "ostler.dev/v1alpha1", "kind": "Config"}
USERS = ("first", "second", "third")
USING = "echo $NVIDIA_VISIBLE_DEVICES; while head -c 1 /dev/nvidiactl; do sleep 0.2; done"
"""Says which devices there are, and ends when one can no longer be opened."""

FIGURES = Path(__file__).parents[3] / "build" / "cluster-figures" / "chart.json"
"""Seconds that things took and gaps that were seen, of the last run; no test depends on them."""


class Users:
    """Pods that use a device each; what they are must not change."""

    def __init__(self, pods: RigPods, node: RigNode) -> None:
        self._pods, self._node = pods, node
        for name in USERS:
            pods.run(simple(name, USING, {GPU: 1}))
        self._at_first = self._state()
        ids = [entry[-1] for entry in self._at_first]
        assert len(set(ids)) == len(USERS), "no device is given twice"
        for name, id_ in zip(USERS, ids, strict=True):
            wait_until(f"{name} sees its device", partial(self._sees, name, id_))

    def untouched(self) -> bool:
        """Whether every pod runs in the very same container, with the same device, restarted never."""
        return self._state() == self._at_first

    def _sees(self, name: str, id_: str) -> bool:
        # The device file reads as zeroes.
        return self._pods.output(name).replace("\0", "").strip() == id_

    def _state(self) -> list[tuple[str, int, str]]:
        found = []
        for name in USERS:
            container, restarts = _container(self._pods.get(name))
            (id_,) = devices_of(self._node, name)
            found.append((container, restarts, id_))
        return found


def _container(pod: Object) -> tuple[str, int]:
    (status,) = pod["status"]["containerStatuses"]
    assert "running" in status["state"], status
    return status["containerID"], status["restartCount"]


@pytest.fixture
def users(release: Release, api: RigApi, node: RigNode, pods: RigPods) -> Users:
    """The chart installed on a node with 8 GPUs, of which 3 are in use."""
    release.install(RECORDING)
    wait_allocatable(api, node, GPU, 8)
    return Users(pods, node)


def test_the_chart_is_installed_upgraded_rolled_back_and_removed_under_pods_that_use_devices(
    release: Release, api: RigApi, node: RigNode, users: Users, pods: RigPods
) -> None:
    figures = {"install_s": release.seconds}
    images = []
    names = {release.agent()["metadata"]["name"]}
    changed = {"image": {"tag": NEXT.rpartition(":")[2]}, "config": {**CONFIG, "log": {"level": "debug"}}}
    steps: list[tuple[str, Callable[[], None]]] = [
        ("upgrade", lambda: release.upgrade(RECORDING, changed)),
        ("rollback", release.rollback),
    ]
    for step, change in steps:
        with Observation(release, node, GPU) as seen:
            change()
            # Created while the new one may still be taking over, it waits for nothing and fails at nothing.
            pods.run(simple(f"after-{step}", resources={GPU: 1}))
        figures[f"{step}_s"] = release.seconds
        figures[f"{step}_kubelet_gap_s"] = longest_below(seen.devices, 8)
        figures[f"{step}_node_gap_s"] = longest_below(seen.offered, 8)
        assert users.untouched()
        assert min(count for _, count in seen.serving) >= 1, "there was a moment without an agent"
        assert seen.devices[-1][1] == 8
        names.add(release.agent()["metadata"]["name"])
        images.append(release.agent()["spec"]["containers"][0]["image"])
    assert len(names) == 3, "every step has another agent"
    assert images == [NEXT, NAME]

    with Observation(release, node, GPU) as seen:
        release.uninstall()
        wait_allocatable(api, node, GPU, 0)
    assert seen.devices[-1][1] == 0
    assert longest_below(seen.devices, 8) > 0, "an observation sees what it is made to see"
    assert users.untouched()
    assert release.objects() == []
    assert left_on(node) <= {"device-pods.json", "identities.json", "lock", "standby"}
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps({name: round(value, 3) for name, value in figures.items()}, indent=1) + "\n")


def left_on(node: RigNode) -> set[str]:
    """What of the agents is on the node: files of the state, and sockets where the kubelet looks for them."""
    folders: Iterator[str] = iter(("lib-ostler", "cdi", "kubelet/plugins_registry", "kubelet/device-plugins"))
    found = {path.name for folder in folders for path in (node.folder / folder).rglob("*") if not path.is_dir()}
    return found - {"kubelet.sock", "kubelet_internal_checkpoint"}


def test_a_configuration_that_the_agent_refuses_stops_the_rollout_and_the_old_agent_goes_on(
    release: Release, api: RigApi, node: RigNode, users: Users, pods: RigPods
) -> None:
    old = release.agent()["metadata"]["name"]
    with pytest.raises(OSError, match=r"(?s)schema.*level"):
        # What the chart's schema knows comes to nobody.
        release.upgrade(values={"config": {**CONFIG, "log": {"level": 3}}})
    release.upgrade(RECORDING, {"configText": "version: v1\nflags:\n  migStrategy: sometimes\n"}, wait=False)

    def refused() -> list[str]:
        states = [status for pod in release.agents() for status in pod["status"].get("containerStatuses", [])]
        ends = [status.get("lastState", {}).get("terminated") or status["state"].get("terminated") for status in states]
        return [end["message"] for end in ends if end and "message" in end]

    # Where people look first: the reason is in the pod itself, not only in its log.
    words = ("config.yaml", "sometimes", "migStrategy")
    wait_until(
        "the new agent says why it ended", lambda: any(all(word in said for word in words) for said in refused())
    )
    assert old in [pod["metadata"]["name"] for pod in release.agents()]
    pods.run(simple("meanwhile", resources={GPU: 1}))
    assert users.untouched()

    release.rollback()
    assert release.agent()["metadata"]["name"] == old
    assert users.untouched()
