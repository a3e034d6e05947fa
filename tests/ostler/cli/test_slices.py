"""``ostler slices``: what is published, what would be, the difference and why."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from driver.publishing.publication import Publication
from kube.bodies import JsonObject
from node.inventory.model import Device, DeviceKind
from node.offer import Withheld
from ostler.admin.dra import slices_message
from ostler.cli.main import main
from protos.agent.v1alpha1.agent_pb2 import ListSlicesResponse, Pool, PoolDevice
from tests.ostler.cli.dra_door import ServedDraDoor, serving

TAINT = "ostler.dev/link-down:NoSchedule"
DEVICES = (
    PoolDevice(name="gpu-0", state="published", slice=0),
    PoolDevice(name="nic-0", state="published", slice=1, taints=[TAINT], why="its link is down"),
    PoolDevice(name="gpu-1", state="missing"),
    PoolDevice(name="gpu-2", state="withheld", why="the node itself uses it"),
)
POOL = Pool(
    name="worker-1",
    slices=2,
    devices=DEVICES,
    dropped=["DRADeviceTaints"],
    problem="the API server refuses the slice: spec.devices[1].name: Required value",
)
VIEW = ListSlicesResponse(driver="ostler.dev", pools=[POOL], generation=7, created=2, updated=1)


def published(*devices: PoolDevice, in_order: bool = True) -> ListSlicesResponse:
    pool = Pool(name="a", slices=1, devices=devices, in_order=in_order)
    return ListSlicesResponse(driver="ostler.dev", pools=[pool], generation=1)


async def slices(folder: Path, view: ListSlicesResponse, *words: str) -> int:
    async with serving(folder, ServedDraDoor(view)) as socket:
        return await asyncio.to_thread(main, ["slices", "--socket", socket, *words])


async def test_each_device_is_a_line_with_its_slice_taints_and_reason(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await slices(short_dir, VIEW) == 0
    assert [line.split("  ") for line in _lines(capsys)] == [
        ["driver ostler.dev: slices 2 created, 1 updated, 0 deleted since the start"],
        [""],
        ["pool worker-1, 2 slices, 2 published, 1 missing, 1 withheld, not in order"],
        ["", "not stored, because the API server lacks the feature gates DRADeviceTaints"],
        ["", "the API server refuses the slice: spec.devices[1].name: Required value"],
        ["DEVICE", "STATE", "SLICE", "TAINTS", "WHY"],
        ["gpu-0", "published", "0", "-"],
        ["nic-0", "published", "1", TAINT, "its link is down"],
        ["gpu-1", "missing", "-", "-"],
        ["gpu-2", "withheld", "-", "-", "the node itself uses it"],
    ]


async def test_only_what_is_different_is_listed_on_demand(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await slices(short_dir, VIEW, "--different") == 0
    assert [line.split()[0] for line in _lines(capsys)[6:]] == ["gpu-1", "gpu-2"]


async def test_a_pool_that_is_as_it_should_be_says_so(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await slices(short_dir, published(DEVICES[0])) == 0
    assert _lines(capsys)[2] == "pool a, 1 slice, 1 published, in order"


@pytest.mark.parametrize(
    ("view", "code"),
    [
        (VIEW, 1),
        (ListSlicesResponse(driver="ostler.dev"), 1),
        (published(*DEVICES[:2], in_order=False), 1),
        (published(PoolDevice(name="x", state="surplus", slice=0)), 1),
        (published(*DEVICES[:2]), 0),
        (published(*DEVICES[3:]), 0),
    ],
)
async def test_check_fails_while_there_is_a_difference_or_a_problem(
    short_dir: Path, view: ListSlicesResponse, code: int
) -> None:
    assert await slices(short_dir, view, "--check") == code


async def test_slices_are_data_for_programs(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await slices(short_dir, VIEW, "-o", "json", "--different") == 0
    document = json.loads(capsys.readouterr().out)
    (pool,) = document["pools"]
    assert (document["driver"], document["created"], pool["slices"], pool["in_order"]) == ("ostler.dev", "2", 2, False)
    assert [device["name"] for device in pool["devices"]] == ["gpu-1", "gpu-2"]
    assert "slice" not in pool["devices"][0]


async def test_before_the_first_publication_the_command_says_so(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = Pool(name="a", problem="no answer\x1b[31m")
    await slices(short_dir, ListSlicesResponse(driver="ostler.dev", pools=[pool]))
    assert _lines(capsys)[1:] == [
        "  nothing has been published yet",
        "",
        "pool a, 0 slices, 0 published, not in order",
        "  no answer\\x1b[31m",
    ]


async def test_without_the_dra_door_the_command_says_what_to_do(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "no resource is offered through DRA; give one 'door: dra' in the configuration, then 'ostler reload'"
    async with serving(short_dir, None) as socket:
        for command in ("slices", "claims"):
            assert await asyncio.to_thread(main, [command, "--socket", socket]) == 3
            assert capsys.readouterr().err == f"ostler: {text}\n"


def test_devices_are_in_the_order_that_is_wanted_and_surplus_ones_last() -> None:
    taint: JsonObject = {"key": "ostler.dev/health", "value": "unhealthy", "effect": "NoSchedule"}
    publication = Publication(
        "worker-1",
        generation=3,
        desired=(({"name": "b", "taints": [taint, {"key": "k", "effect": "None"}]}, {"name": "new"}), ({"name": "a"},)),
        stored=(("a", "b"), ("old",)),
        dropped=("X",),
        error="e",
        creates=1,
        updates=2,
        deletes=3,
    )
    gpu = Device("gpu-9", DeviceKind.GPU, "nvidia")
    taints = ["ostler.dev/health=unhealthy:NoSchedule", "k:None"]
    pool = Pool(
        name="worker-1",
        slices=2,
        devices=[
            PoolDevice(name="b", state="published", slice=0, taints=taints, why="w"),
            PoolDevice(name="new", state="missing", why="x"),
            PoolDevice(name="a", state="published", slice=0),
            PoolDevice(name="old", state="surplus", slice=1),
            PoolDevice(name="gpu-9", state="withheld", why="no rule selects it"),
        ],
        dropped=["X"],
        problem="e",
    )
    withheld = [Withheld(gpu, "no rule selects it")]
    assert slices_message("d", publication, {"b": "w", "new": "x"}, withheld) == ListSlicesResponse(
        driver="d", pools=[pool], generation=3, created=1, updated=2, deleted=3
    )


def _lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was printed, with two blanks between columns."""
    return [re.sub(r"(?<=\S) {2,}", "  ", line) for line in capsys.readouterr().out.splitlines()]
