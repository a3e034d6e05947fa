"""The agent's second door against the sandbox's kubelet and cluster: both doors of one process, and its prompt."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from node.inventory.recordings.source import read
from sandbox.claimed import shares
from sandbox.cluster import samples
from sandbox.cluster.classes import DRIVER
from sandbox.cluster.cluster import Cluster
from sandbox.configuration import configuration
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.waiting import eventually


@pytest.fixture
async def box() -> AsyncIterator[SandboxNode]:
    recorded = path("h100-sxm-8")
    text = configuration(mig=True, shares=shares(read(recorded).facts))
    async with SandboxNode(recorded, configuration=text, reconcile_interval=0.05, cluster=True) as box:
        await box.registered()
        yield box


def cluster_of(box: SandboxNode) -> Cluster:
    assert box.cluster is not None
    return box.cluster


async def published(box: SandboxNode) -> list[str]:
    slices = await cluster_of(box).slices(DRIVER)
    return [device["name"] for each in slices for device in each["spec"]["devices"]]


async def test_no_device_is_offered_through_both_doors(box: SandboxNode) -> None:
    claimed = await published(box)
    devices = await box.devices()
    assert len(claimed) == 4
    plugin = {device["name"] for device in devices if device.get("resource") == "nvidia.com/gpu"}
    assert len(plugin) == 4
    assert not plugin & set(claimed)


async def test_slices_are_back_after_the_kubelet_wiped_them(box: SandboxNode) -> None:
    before = await published(box)
    await box.kubelet.restart()
    await eventually(lambda: box.kubelet.dra.drivers.wiping.wiped == [None], "the wipe")

    async def back() -> bool:
        return await published(box) == before

    await eventually(back, "the slices")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_claim_outlives_the_agent(box: SandboxNode, number: signal.Signals) -> None:
    cluster = cluster_of(box)
    await cluster.apply([samples.template("one")])
    first = await cluster.run(samples.pod("p", "one"))
    assert first.running, first.message
    specs = {each.name: each.read_bytes() for each in box.cdi.glob(f"{DRIVER}-claim_*")}
    assert len(specs) == 1
    await box.restart_agent(number)
    await box.registered()
    assert {each.name: each.read_bytes() for each in box.cdi.glob(f"{DRIVER}-claim_*")} == specs
    second = await cluster.run(samples.pod("q", "one"))
    assert second.running, second.message
    assert set(first.claims.values()).isdisjoint(second.claims.values())
    for name in ("p", "q"):
        await cluster.end(name)
    assert not list(box.cdi.glob(f"{DRIVER}-claim_*"))


async def test_unprepare_needs_no_api_server(box: SandboxNode) -> None:
    cluster = cluster_of(box)
    await cluster.apply([samples.template("one")])
    outcome = await cluster.run(samples.pod("p", "one"))
    assert outcome.running, outcome.message
    assert box.server is not None
    box.server.down()
    (pod,) = box.kubelet.pods()
    await box.kubelet.end(pod)
    assert not list(box.cdi.glob(f"{DRIVER}-claim_*"))
    box.server.up()


async def test_what_is_not_published_is_told(box: SandboxNode) -> None:
    assert box.server is not None
    assert box.hardware is not None
    box.server.down()
    box.hardware.fail(7)
    await box.agent.rescan()
    with pytest.raises(TimeoutError, match="pool sandbox: "):
        await box.published(asyncio.get_running_loop().time() + 0.5)
    box.server.up()
    await box.published()


def prompt(typed: str, node: str = "h100-sxm-8") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ostler", "sandbox", "--node", node],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("Commands:")[2]


def test_prompt_runs_pods_with_claims(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(_MANIFEST)
    empty = tmp_path / "other.yaml"
    empty.write_text("kind: Deployment\n---\n---\njust text\n")
    typed = [
        "slices", "claim", "claims", "claim 4 cell4", "pods", "end claim-pod-1", "retry claim-pod-2", "end claim-pod-2",
        f"apply {manifest}", "apply /nonexistent.yaml", f"apply {empty}", "claim none", "claim 0", "retry nobody",
        "restart-kubelet", "kill-agent", "end mine", "claims", "quit",
    ]  # fmt: skip
    said = prompt("\n".join(typed) + "\n")
    assert "name: gpu-0000-9d-00-0" in said
    assert "reservedFor:\n     - claim-pod-1\n" in said
    assert "message: '0/1 nodes are available: 1 cannot allocate all claims'" in said
    assert "claim-pod-2: Pending\n" in said
    assert said.count("phase: Running") == 3
    assert "pod: mine" in said
    assert "No such file or directory: '/nonexistent.yaml'" in said
    assert "no kind 'Deployment' here; there are " in said
    assert said.count("usage: claim [COUNT [MATCH]]") == 2
    assert 'pods "nobody" not found' in said
    assert "killed and started again" in said
    assert said.endswith("ostler>    - claim: shared\nostler> ")


_MANIFEST = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec:
  devices:
    requests:
      - {name: gpu, exactly: {deviceClassName: gpu.ostler.dev}}
---
apiVersion: v1
kind: Pod
metadata: {name: mine}
spec:
  containers:
    - name: main
      image: none
      resources: {claims: [{name: gpu}]}
  resourceClaims:
    - {name: gpu, resourceClaimName: shared}
"""


def test_node_without_claims_says_so() -> None:
    said = prompt("slices\nclaims\nclaim\nend p\nquit\n", node="sriov-2")
    assert said.count("   none\n") == 2
    assert "0/1 nodes are available: 1 cannot allocate all claims" in said


def test_later_half_of_the_whole_gpus_is_for_claims() -> None:
    for name, claimed in (("h100-sxm-8", 4), ("l4-2", 1), ("sriov-2", 0), ("mi300x-8", 0)):
        found = shares(read(path(name)).facts)
        assert len(found.claimed) == claimed
        assert not set(found.claimed) & set(found.others)
    cut: Any = shares(read(path("a100-mig-4")).facts)
    assert len(cut.claimed) + len(cut.others) == 4
