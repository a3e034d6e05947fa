"""Every example of shared GPUs is complete, and its pods get what its page says on nodes that have it."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from node.eligibility import offer
from node.ledger.offer_context import NOTHING_HELD
from node.offer import Offer
from node.rules import Door
from ostler.config.load import Loaded, load_bytes
from plugin.servicer import renderer
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.deploy.chart.rendering import Document, of_kind, render
from tests.driver.devices.recorded import snapshot
from tests.examples.claims import ROOT
from tests.making.mig_nodes import node
from tests.making.recorded_cases import files_in
from tests.node.nvml.stub.injected import InjectedNvml

FOLDER = ROOT / "examples" / "sharing"
EXAMPLES = [manifest.parent.name for manifest in files_in(FOLDER, "*/manifest.yaml")]
NODES = {
    "time-slicing": ("h100-sxm-8", {"nvidia.com/gpu.shared": 32}),
    "distributed": ("h100-sxm-8", {"nvidia.com/gpu.shared": 32}),
    "some-gpus": ("h100-sxm-8", {"nvidia.com/gpu.shared": 10, "nvidia.com/gpu": 7}),
    "mps": ("h100-sxm-8", {"nvidia.com/gpu.shared": 32}),
    "mig": ("a100-mig-4", {"nvidia.com/mig-1g.5gb.shared": 18}),
    "both-doors": ("l4-2", {"nvidia.com/gpu.shared": 8}),
    "nvidia-file": ("l4-2", {"nvidia.com/gpu.shared": 8}),
}
"""A node of the sandbox, and how many of which resource the example offers there."""
MADE = "mig-layout"
"""The example whose devices are made on a driver, which no recorded node has."""


def page(example: str) -> str:
    return (FOLDER / example / "README.md").read_text()


def pods(example: str) -> list[Document]:
    documents = yaml.safe_load_all((FOLDER / example / "manifest.yaml").read_text())
    return of_kind([document for document in documents if document], "Pod")


def values(example: str) -> dict[str, Any]:
    """The chart's values that the page asks for."""
    found = re.search(r"^```yaml\n(.*?)^```$", page(example), re.MULTILINE | re.DOTALL)
    if found is None:
        (name,) = re.findall(r"configText=(\S+)", page(example))
        return {"configText": (ROOT / name).read_text()}
    given: dict[str, Any] = yaml.safe_load(found[1])
    return given


def configuration(example: str) -> str:
    """What an agent with these values is given."""
    given = values(example)
    head = {"apiVersion": "ostler.dev/v1alpha1", "kind": "Config"}
    return given.get("configText") or json.dumps({**head, **given["config"]})


def loaded(example: str) -> Loaded:
    return load_bytes("config.yaml", configuration(example).encode(), {}, {})


def offered(example: str) -> Offer:
    """What the agent offers on the example's node, without what keeps MPS from recorded ones."""
    return offer(snapshot(NODES[example][0]), loaded(example).settings.rules, NOTHING_HELD, Door.PLUGIN)


def requested(pod: Document) -> dict[str, int]:
    (container,) = pod["spec"]["containers"]
    limits: dict[str, int] = container["resources"].get("limits", {})
    return limits


def test_every_example_is_in_the_table_and_has_a_page() -> None:
    table = re.findall(r"^\| \[([\w-]+)\]\((.*?)\) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(table) == [(example, f"{example}/README.md") for example in EXAMPLES]
    assert {*NODES, MADE} == set(EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_page_applies_its_own_manifest_and_waits_for_its_own_pods(example: str) -> None:
    assert f"kubectl apply -f {(FOLDER / example / 'manifest.yaml').relative_to(ROOT)}" in page(example)
    for pod in pods(example):
        assert f"pod/{pod['metadata']['name']} " in page(example)


@pytest.mark.timeout(600)  # it may have to build Helm
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_chart_takes_the_values(example: str) -> None:
    assert of_kind(render(values(example)), "DaemonSet")


@pytest.mark.parametrize("example", NODES)
def test_the_node_offers_as_many_shares_as_the_page_says(example: str) -> None:
    counts = Counter({resource.resource: len(resource.devices) for resource in offered(example).resources})
    wanted = NODES[example][1]
    assert {name: counts[name] for name in wanted} == wanted
    assert all(name in counts for pod in pods(example) for name in requested(pod))
    assert all(item.healthy for resource in offered(example).resources for item in resource.devices)


@pytest.mark.parametrize("example", [example for example in NODES if example not in ("mps", "both-doors")])
async def test_the_pods_get_their_shares(example: str) -> None:
    async with SandboxNode(
        path(NODES[example][0]), configuration=configuration(example), reconcile_interval=0.05
    ) as box:
        for name, count in NODES[example][1].items():
            await box.kubelet.wait_for(name, healthy=count)
        given = [await box.give_together(limits) for pod in pods(example) if (limits := requested(pod))]
        assert all(each.admission.admitted for each in given)
        owners = [{id_.partition("::")[0] for id_ in each.ids} for each in given]
        if example == "time-slicing":
            assert owners[0] == owners[1]
            assert not (await box.give("nvidia.com/gpu.shared", 2)).admission.admitted
        if example == "distributed":
            assert owners[0] != owners[1]
            assert len(owners[2]) == 2


@pytest.mark.needs_gcc
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed: the stub NVML cannot be compiled")
async def test_gpus_are_divided_by_the_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hardware = InjectedNvml(tmp_path / "driver", node(2))
    for name, value in hardware.environment.items():
        monkeypatch.setenv(name, value)
    flags = {"--nvidia-library": str(hardware.library)}
    async with SandboxNode(None, flags=flags, configuration=configuration(MADE), reconcile_interval=0.05) as box:
        for profile, count in {"3g.40gb": 2, "2g.20gb": 2, "1g.10gb": 4}.items():
            await box.kubelet.wait_for(f"nvidia.com/mig-{profile}", healthy=count)
        for pod in pods(MADE):
            assert (await box.give_together(requested(pod))).admission.admitted


async def test_pods_and_claims_never_get_more_of_a_gpu_than_there_is() -> None:
    manifest = (FOLDER / "both-doors" / "manifest.yaml").read_text()
    async with SandboxNode(
        path("l4-2"), configuration=configuration("both-doors"), cluster=True, reconcile_interval=0.05
    ) as box:
        await box.registered()
        assert box.cluster is not None
        outcomes = await box.cluster.apply(yaml.safe_load_all(manifest))
        assert all(outcome.running for outcome in outcomes), outcomes
        for _ in range(5):
            assert (await box.give("nvidia.com/gpu.shared", 1)).admission.admitted
        # Half of one GPU is the claim's.
        assert not (await box.give("nvidia.com/gpu.shared", 1)).admission.admitted


def test_a_container_under_mps_gets_the_variable_that_the_page_names() -> None:
    (resource,) = offered("mps").resources
    answer = renderer(resource)(resource.devices[:1])
    assert answer.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/nvidia.com/gpu.shared/pipe"
    (rule,) = loaded("mps").settings.rules
    assert rule.sharing is not None
    assert (rule.sharing.memory_limit, rule.sharing.thread_percentage) == (16 * 2**30, 50)
