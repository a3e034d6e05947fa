"""``ostler claims``: what is prepared here, for whom, with which CDI devices, and where one is stuck."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from driver.claims.model import ClaimReference, ClaimState, ClaimStatus, PreparedDevice
from node.values import replace
from ostler.admin.dra import claims_message
from ostler.cli.main import main
from protos.agent.v1alpha1.agent_pb2 import Claim, ClaimDevice, ListClaimsResponse
from tests.ostler.cli.dra_door import ServedDraDoor, serving

GIVEN = (
    ClaimStatus(
        ClaimReference("default", "train-gpus-x7k2p", "1f0c"),
        ClaimState.PREPARED,
        (
            PreparedDevice(("gpus",), "worker-1", "gpu-0", ("ostler.dev/claim=1f0c-gpu-0",)),
            PreparedDevice(("gpus",), "worker-1", "gpu-1", ("ostler.dev/claim=1f0c-gpu-1", "nvidia.com/gpu=1")),
        ),
        ("pod-a", "pod-b"),
        1_700_000_000.0,
    ),
    ClaimStatus(
        ClaimReference("team", "watch", "2e9d"),
        ClaimState.STARTED,
        (PreparedDevice(("all",), "worker-1", "gpu-0", (), "s1"),),
        problem="gpu-0 is still held by default/train-gpus-x7k2p",
    ),
)


async def claims(folder: Path, *words: str, known: tuple[ClaimStatus, ...] = GIVEN) -> int:
    async with serving(folder, ServedDraDoor(claims=claims_message(known))) as socket:
        return await asyncio.to_thread(main, ["claims", "--socket", socket, *words])


async def test_each_device_is_a_line_and_the_claim_stands_in_its_first(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await claims(short_dir) == 0
    header, first, second, third = capsys.readouterr().out.splitlines()
    assert header.split() == ["CLAIM", "STATE", "SINCE", "REQUEST", "DEVICE", "CDI", "DEVICES", "PODS", "STUCK"]
    assert first.split() == [
        "default/train-gpus-x7k2p",
        "prepared",
        "2023-11-14T22:13:20Z",
        "gpus",
        "gpu-0",
        "ostler.dev/claim=1f0c-gpu-0",
        "pod-a,pod-b",
    ]
    assert second.split() == ["gpus", "gpu-1", "ostler.dev/claim=1f0c-gpu-1", "nvidia.com/gpu=1"]
    assert "gpu-0 (share s1)" in third
    assert third.endswith("gpu-0 is still held by default/train-gpus-x7k2p")


async def test_the_metadata_files_come_last(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described = replace(GIVEN[0], metadata_files=("/plugins/a/metadata.json", "/plugins/b/metadata.json"))
    assert await claims(short_dir, known=(described,)) == 0
    assert capsys.readouterr().out.endswith(
        "\n\nmetadata files:\n  /plugins/a/metadata.json\n  /plugins/b/metadata.json\n"
    )


@pytest.mark.parametrize("name", ["watch", "team/watch", "2e9d"])
async def test_one_claim_is_shown_by_any_of_its_names(
    short_dir: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert await claims(short_dir, name, "-o", "json") == 0
    (claim,) = json.loads(capsys.readouterr().out)["claims"]
    assert (claim["uid"], claim["state"], claim["devices"][0]["share_id"]) == ("2e9d", "started", "s1")


async def test_a_claim_that_is_not_here_is_an_error_that_names_it(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await claims(short_dir, "other/watch") == 1
    text = "ostler: this node has no claim other/watch; 'ostler claims' lists those that it has\n"
    assert capsys.readouterr().err == text


async def test_a_node_without_claims_says_so(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await claims(short_dir, known=()) == 0
    assert capsys.readouterr().out == "no claim holds devices of this node, and none was refused lately\n"
    assert await claims(short_dir, "-o", "json", known=()) == 0
    assert json.loads(capsys.readouterr().out) == {"claims": []}


def test_messages_say_what_the_claims_statuses_say() -> None:
    reference = ClaimReference("default", "a", "u")
    given = PreparedDevice(("r",), "p", "gpu-0", ("c=1",), "s")
    statuses = [
        ClaimStatus(reference, ClaimState.PREPARED, (given,), ("pod",), 5.0),
        ClaimStatus(reference, ClaimState.VOID),
        ClaimStatus(reference, ClaimState.REFUSED, since=6.0, problem="no"),
    ]
    names: dict[str, Any] = {"namespace": "default", "name": "a", "uid": "u"}
    device = ClaimDevice(requests=["r"], pool="p", device="gpu-0", cdi_devices=["c=1"], share_id="s")
    assert claims_message(statuses) == ListClaimsResponse(
        claims=[
            Claim(**names, state="prepared", since=5.0, pods=["pod"], devices=[device]),
            Claim(**names, state="void"),
            Claim(**names, state="refused", since=6.0, stuck="no"),
        ]
    )
