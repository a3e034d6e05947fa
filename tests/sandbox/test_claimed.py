"""What of a recorded node is for claims, and what the tour shows of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from node.inventory.recordings.source import read
from sandbox.claimed import shares
from sandbox.configuration import configuration
from sandbox.nodes import names, path


@pytest.mark.parametrize(
    ("name", "claimed"),
    [
        ("h100-sxm-8", (4, 0, 5, 0)),
        ("l4-2", (1, 0, 0, 0)),
        ("sriov-2", (0, 0, 0, 1)),
        ("mi300x-8", (0, 4, 4, 0)),
        ("mi300x-cpx-8", (0, 4, 4, 0)),
        ("a100-mig-4", (1, 0, 1, 0)),
    ],
)
def test_later_half_of_each_sort_is_for_claims(name: str, claimed: tuple[int, ...]) -> None:
    found = shares(read(path(name)).facts)
    divisions = (found.nvidia, found.amd, found.nics, found.cards)
    assert tuple(len(each.claimed) for each in divisions) == claimed
    for each in divisions:
        assert not set(each.claimed) & set(each.others)
        assert not each.others or max(each.others) < min(each.claimed) or name == "a100-mig-4"


@pytest.mark.parametrize("name", names())
def test_agent_takes_the_configuration_of_every_node_and_no_device_has_two_doors(name: str, tmp_path: Path) -> None:
    facts = read(path(name)).facts
    written = tmp_path / "ostler.yaml"
    written.write_text(configuration(mig=True, shares=shares(facts)))
    arguments = [sys.executable, "-m", "ostler", "devices", "--scan", "--config", str(written), "-o", "json"]
    arguments += ["--node-name", name, "--recorded", str(path(name))]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    devices = json.loads(done.stdout)["devices"]
    assert any(device.get("door") == "dra" for device in devices)
    reasons = [str(device.get("offer_reason")) for device in devices]
    wide = [str(device["host_use"]) for device in devices if device.get("host_use")]
    assert not wide or name == "sriov-2" or any("the node itself uses it" in reason for reason in reasons)


def told(node: str) -> dict[str, Any]:
    arguments = [sys.executable, "-m", "ostler", "sandbox", "--once", "--node", node]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("node", ["h100-sxm-8", "mi300x-8", "sriov-2"])
def test_tour_tells_of_a_claim_and_leaves_nothing(node: str) -> None:
    seen = told(node)
    assert seen["claim"]["phase"] == "Running"
    injected = seen["claim"]["containers"]["main"]["injected"]
    assert injected.get("env") or injected.get("deviceNodes")
    ((_, (claimed,)),) = seen["claim"]["claims"].items()
    device = claimed.rpartition("/")[2]
    assert device in seen["claim_failure"]["taints"]
    assert "Unhealthy" in str(seen["claim_failure"]["podStatus"])
    assert device not in seen["claim_recovery"]["taints"]
    assert seen["released"] == {"claims": [], "specs": []}
    published = {device["name"] for device in seen["devices"] if "published" in device}
    assert published == {device["name"] for each in seen["slices"] for device in each["devices"]}
    assert published == {device["name"] for device in seen["devices"] if device.get("door") == "dra"}
    if node != "sriov-2":
        ((_, pair),) = seen["claim_pair"]["claims"].items()
        assert pair[0].rpartition("/")[2].startswith("gpu-")
        assert len(pair) == 2
        assert [pod["phase"] for pod in seen["islands"]] == ["Running", "Pending"]
