"""``ostler slices --from``: what is printed of a recorded node is what the agent publishes for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ostler.cli.main import main
from sandbox.cluster.samples import DRIVER
from sandbox.configuration import configuration, with_partitions, with_shares
from sandbox.node import SandboxNode
from sandbox.nodes import path
from scheduling.api.validation.objects import validate_slice
from tests.waiting import eventually

SHARED_AND_PARTED = with_shares(
    with_partitions(configuration(mig=True, both=True), "gpu-0000-1b-00-0", "nvidia.com/gpu"),
    "gpu-0000-43-00-0",
    "nvidia.com/gpu.shared",
    4,
)
"""One GPU in parts that are made for claims, one shared by several pods."""


@pytest.mark.parametrize(
    ("node", "text"),
    [("a100-mig-4", None), ("sriov-2", None), ("h100-sxm-8", SHARED_AND_PARTED)],
    ids=["mig", "nics", "shares and partitions"],
)
async def test_a_recorded_nodes_slices_are_those_that_the_agent_publishes(
    node: str, text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A second or two each: the agent, a kubelet and an API server are started.
    words = ["slices", "--from", node]
    if text is not None:
        config = tmp_path / "ostler.yaml"
        config.write_text(text)
        words += ["--config", str(config)]
    assert main(words) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    own = text or configuration(mig=True, both=True)
    flags = {"--node-name": node}
    async with SandboxNode(path(node), configuration=own, flags=flags, reconcile_interval=0.05, cluster=True) as box:
        await box.registered()
        cluster = box.cluster
        stored: list[Any] = []
        assert cluster is not None

        async def is_as_printed() -> bool:
            # A slow agent publishes before it knows what is held, and withdraws everything until it does.
            stored[:] = await cluster.slices(DRIVER)
            return [_spec(each) for each in stored] == [_spec(each) for each in printed]

        await eventually(is_as_printed, "the slices that are printed")
    if text is not None:
        assert any("sharedCounters" in each["spec"] for each in printed)
    assert [each["metadata"]["name"] for each in printed] == [each["metadata"]["name"][:-6] for each in stored]
    assert [validate_slice(each) for each in printed] == [[]] * len(printed)


def _spec(body: dict[str, Any]) -> dict[str, Any]:
    """What a slice says; its generation counts how often the pool was written, a taint's time is the server's."""
    spec = dict(body["spec"])
    spec["pool"] = {**spec["pool"], "generation": 1}
    if "devices" in spec:
        spec["devices"] = [_device(each) for each in spec["devices"]]
    return spec


def _device(body: dict[str, Any]) -> dict[str, Any]:
    taints = [{key: part for key, part in each.items() if key != "timeAdded"} for each in body.get("taints", ())]
    return {**body, **({"taints": taints} if taints else {})}


def test_json_is_a_list_and_the_node_may_have_another_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slices", "--from", "l4-2", "-o", "json", "--node-name", "edge-7"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["kind"], len(printed["items"])) == ("List", 1)
    spec = printed["items"][0]["spec"]
    assert (spec["nodeName"], spec["pool"]["name"]) == ("edge-7", "edge-7")
    assert printed["items"][0]["metadata"] == {"name": "00000-ostler.dev-edge-7"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--from", "nope"], 2, "no shipped node is called 'nope'; known: a100-mig-4, "),
        (["--from", "nope"], 2, "; or give the file of a node that 'ostler record' wrote\n"),
        (
            ["--from", "./gone.yaml"],
            2,
            "gone.yaml: cannot be read: No such file or directory\n",
        ),
        (
            ["--from", "l4-2", "-o", "table"],
            2,
            "-o table is about a running agent; a recorded node (--from) is printed as yaml or json\n",
        ),
        (["--from", "l4-2", "--check"], 2, "--check is about a running agent; a recorded node "),
        (["--from", "l4-2", "--different"], 2, "--different is about a running agent; a recorded node "),
        (["--config", "x"], 2, "--config is for a recorded node; add --from NODE, or leave --config out\n"),
        (["--node-name", "x"], 2, "--node-name is for a recorded node; add --from NODE, or leave --node-name out\n"),
        (["--from", "l4-2", "--config", "/gone.yaml"], 2, "the configuration is not usable\n/gone.yaml"),
        (["--from", "l4-2", "--node-name", "a/b"], 2, "the configuration is not usable\n--node-name"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["slices", *words]) == code
    assert message in capsys.readouterr().err


def test_a_file_that_is_no_recording_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "node.yaml"
    wrong.write_text("schema: ostler.dev/recorded-node/v1\nfacts:\n  nvml: {gpus: 3}\n")
    assert main(["slices", "--from", str(wrong)]) == 2
    assert capsys.readouterr().err.startswith(f"ostler: {wrong}:3: facts.nvml.gpus: ")
