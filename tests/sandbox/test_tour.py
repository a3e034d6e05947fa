"""What the tour shows of each door and of both, on recorded nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from node.inventory.recordings.source import read
from sandbox.configuration import configuration
from sandbox.nodes import names, path
from sandbox.steps import MOST, WIDTH, TourStep, brief
from tests.making.commands import command
from tests.making.tours import tour_of
from tests.sandbox.sessions import session


@pytest.mark.parametrize("name", names())
async def test_agent_takes_the_configuration_of_every_node_and_offers_its_devices_at_both_doors(
    name: str, tmp_path: Path
) -> None:
    assert read(path(name)).facts is not None
    written = tmp_path / "ostler.yaml"
    written.write_text(configuration(mig=True, both=True))
    arguments = ["--config", str(written), "--node-name", name, "--recorded", str(path(name))]
    done = await command("devices", "--scan", "-o", "json", *arguments)
    assert done.code == 0, done.err
    devices = json.loads(done.out)["devices"]
    assert any(device.get("door") == "both" for device in devices), devices[0]
    reasons = [str(device.get("offer_reason")) for device in devices]
    wide = [str(device["host_use"]) for device in devices if device.get("host_use")]
    assert not wide or any("the node itself uses it" in reason for reason in reasons)


TWO_SCREENS = 2 * 45
"""Lines of two terminals."""


@pytest.mark.parametrize(
    ("name", "typed"), [("h100-sxm-8", "both doors"), ("sriov-2", "nics"), ("a100-mig-4", "nothing")]
)
def test_the_story_is_on_two_screens_and_names_every_step(name: str, typed: str, run_dir: Path) -> None:
    lines = session(typed, run_dir).story.splitlines()
    assert len(lines) < TWO_SCREENS, "with the prompt's line"
    assert max(map(len, lines)) <= WIDTH
    assert len([line for line in lines if line.startswith("== ")]) == len(tour_of(name, run_dir)) - 1, (
        "all but the node's name"
    )
    assert any("at both doors: as " in line for line in lines), "what is at both doors says so"
    assert "'help' lists them" in lines[-1]


def test_verbose_shows_all_of_a_step_and_the_commands(run_dir: Path) -> None:
    text = session("verbose", run_dir).story
    lines = text.splitlines()
    assert len(lines) > 4 * TWO_SCREENS
    assert "host_path: /dev/nvidiactl" in text
    assert "  restart-kubelet          restart the embedded kubelet" in text
    (gpu,) = (line for line in lines if line.startswith("   gpu-0000-1b-00-0  NVIDIA"))
    assert gpu.endswith("at both doors: as nvidia.com/gpu and for claims, published")


def test_a_step_that_is_long_or_unknown_is_cut_to_its_first_lines() -> None:
    lines = brief(TourStep("new", "Something new", {f"fact-{number}": number for number in range(20)}))
    assert (lines[0], len(lines)) == ("== Something new", MOST + 1)
    assert lines[1:2] == ["   fact-0: 0"]
    assert lines[-1] == f"   ... ({20 - MOST + 1} more)"
    assert brief(TourStep("devices", "Found", [])) == ["== Found", "   none"]


@pytest.mark.parametrize("node", ["gaudi2-8", "h100-sxm-8", "mi300x-8", "sriov-2"])
def test_tour_tells_of_both_doors_and_leaves_nothing(node: str, run_dir: Path) -> None:
    seen = tour_of(node, run_dir)
    assert seen["claim"]["phase"] == "Running"
    injected = seen["claim"]["containers"]["main"]["injected"]
    assert injected.get("env") or injected.get("deviceNodes")
    ((_, (claimed,)),) = seen["claim"]["claims"].items()
    device = claimed.rpartition("/")[2]
    assert device in seen["claim_failure"]["taints"]
    assert "Unhealthy" in str(seen["claim_failure"]["podStatus"])
    if node == "h100-sxm-8":
        assert any(line.startswith(device) and "unhealthy" in line for line in seen["health"])
    assert device not in seen["claim_recovery"]["taints"]
    assert seen["released"] == {"claims": [], "specs": []}
    published = {each["name"] for each in seen["devices"] if each.get("published") == "published"}
    assert published == {each["name"] for one in seen["slices"] for each in one["devices"]}
    if node == "h100-sxm-8":
        assert [seen["partition"][pod]["phase"] for pod in ("part", "whole")] == ["Running", "Running"]
        assert len(seen["partition"]["made"]) == 1
    if node in ("h100-sxm-8", "mi300x-8"):
        shares = [line for line in seen["shares"] if "(share " in line]
        assert [sum(door in line for line in shares) for door in ("plugin ", "dra ")] == [2, 1], shares
        ((_, pair),) = seen["claim_pair"]["claims"].items()
        assert pair[0].rpartition("/")[2].startswith("gpu-")
        assert len(pair) == 2
        assert [pod["phase"] for pod in seen["islands"]] == ["Running", "Running", "Pending"]


@pytest.mark.parametrize("node", ["h100-sxm-8", "sriov-2"])
def test_tour_shows_what_one_door_keeps_from_the_other_until_it_is_free(node: str, run_dir: Path) -> None:
    seen = tour_of(node, run_dir)
    lines = seen["holds"][1:]
    (by_pod,) = (line for line in lines if " default/pod-" in line and "held through the plugin door" in line)
    (by_claim,) = (line for line in lines if " default/both-1-" in line and "held through the dra door" in line)
    assert " listed " in by_pod
    assert " prepared " in by_claim
    ((resource, left),) = seen["withdrawn"]["allocatable"].items()
    assert seen["withdrawn"]["taints"] == {by_pod.split()[0]: ["ostler.dev/other-door=plugin:NoSchedule"]}
    assert seen["offered_again"] == {"allocatable": {resource: left + 1}, "taints": {}}
