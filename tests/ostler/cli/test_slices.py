"""``ostler slices``: what is published, what would be, the difference and why."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from driver.publishing.publisher import Publication
from kube.bodies import JsonObject
from node.inventory.model import Device, DeviceKind
from node.offer import Withheld
from ostler.admin.dra import DeviceState, PoolView, SliceDevice, SlicesView
from ostler.admin.dra_views import slices_view
from ostler.cli.main import main
from tests.ostler.cli.second_door import Door, serving

TAINT = "ostler.dev/link-down:NoSchedule"
POOL = PoolView(
    "worker-1",
    slices=2,
    devices=(
        SliceDevice("gpu-0", DeviceState.PUBLISHED, 0),
        SliceDevice("nic-0", DeviceState.PUBLISHED, 1, (TAINT,), "its link is down"),
        SliceDevice("gpu-1", DeviceState.MISSING),
        SliceDevice("gpu-2", DeviceState.WITHHELD, why="the node itself uses it"),
    ),
    dropped=("DRADeviceTaints",),
    problem="the API server refuses the slice: spec.devices[1].name: Required value",
)
VIEW = SlicesView("ostler.dev", (POOL,), generation=7, created=2, updated=1)


def settled(*devices: SliceDevice) -> SlicesView:
    return SlicesView("ostler.dev", (PoolView("a", 1, devices, in_order=True),), generation=1)


async def slices(folder: Path, view: SlicesView, *words: str) -> int:
    async with serving(folder, Door(view)) as socket:
        return await asyncio.to_thread(main, ["slices", "--socket", socket, *words])


async def test_each_device_is_a_line_with_its_slice_taints_and_reason(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await slices(short_dir, VIEW) == 0
    assert [line.split("  ") for line in _lines(capsys)] == [
        ["driver ostler.dev: slices 2 created, 1 updated, 0 deleted since the start"],
        [""],
        ["pool worker-1, 2 slices, 2 published, 1 missing, 1 withheld, not as it should be"],
        ["", "not stored for want of the feature gates DRADeviceTaints"],
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
    assert await slices(short_dir, settled(POOL.devices[0])) == 0
    assert _lines(capsys)[2] == "pool a, 1 slice, 1 published, in order"


@pytest.mark.parametrize(
    ("view", "code"),
    [
        (VIEW, 1),
        (SlicesView("ostler.dev"), 1),
        (SlicesView("ostler.dev", (PoolView("a", 1, POOL.devices[:2]),), generation=1), 1),
        (settled(SliceDevice("x", DeviceState.SURPLUS, 0)), 1),
        (settled(*POOL.devices[:2]), 0),
        (settled(*POOL.devices[3:]), 0),
    ],
)
async def test_check_fails_while_there_is_a_difference_or_a_problem(
    short_dir: Path, view: SlicesView, code: int
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
    await slices(short_dir, SlicesView("ostler.dev", (PoolView("a", problem="no answer\x1b[31m"),)))
    assert _lines(capsys)[1:] == [
        "  nothing was handed over for publishing yet",
        "",
        "pool a, 0 slices, 0 published, not as it should be",
        "  no answer\\x1b[31m",
    ]


async def test_without_the_second_door_the_command_says_what_to_do(
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
    assert slices_view("d", publication, {"b": "w", "new": "x"}, [Withheld(gpu, "no rule selects it")]) == SlicesView(
        "d",
        (
            PoolView(
                "worker-1",
                2,
                (
                    SliceDevice(
                        "b", DeviceState.PUBLISHED, 0, ("ostler.dev/health=unhealthy:NoSchedule", "k:None"), "w"
                    ),
                    SliceDevice("new", DeviceState.MISSING, None, (), "x"),
                    SliceDevice("a", DeviceState.PUBLISHED, 0),
                    SliceDevice("old", DeviceState.SURPLUS, 1),
                    SliceDevice("gpu-9", DeviceState.WITHHELD, why="no rule selects it"),
                ),
                dropped=("X",),
                problem="e",
            ),
        ),
        3,
        1,
        2,
        3,
    )


def _lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was printed, with two blanks between columns."""
    return [re.sub(r"(?<=\S) {2,}", "  ", line) for line in capsys.readouterr().out.splitlines()]
