"""The API server keeps taints or drops them, and that changes while the agent runs."""

from __future__ import annotations

from pathlib import Path

from node.rules import Doors
from sandbox.apiserver.server import GATES_OFF
from scheduling.api.validation.shapes import DEFAULT
from tests.making.both_doors import WITHDRAWN, Both, api_server, begun, ended_at, gpus
from tests.waiting import eventually


async def test_where_taints_are_dropped_both_acts_as_plugin_and_devices_move_all_the_same(short_dir: Path) -> None:
    with api_server(GATES_OFF) as server:
        both = Both(short_dir, server, gpus(3), Doors.BOTH)
        async with both.running():
            await eventually(lambda: "drops device taints" in both.second.held_back())
            await ended_at(both, Doors.PLUGIN)
            for doors in (Doors.DRA, Doors.PLUGIN, Doors.DRA):
                both.use(doors)
                await ended_at(both, doors)
            server.requests.clear()
            both.use(Doors.BOTH)
            await ended_at(both, Doors.PLUGIN)
            assert both.asked("list", "resourceclaims") == 1
            assert both.events.of("SlicesNotPublished") == []


async def test_a_gate_that_is_turned_on_is_found_at_the_next_look(short_dir: Path) -> None:
    with api_server(GATES_OFF) as server:
        both = Both(short_dir, server, gpus(3), Doors.BOTH)
        both.second._parts.doors.features._look_every = 0.2
        async with both.running():
            await eventually(lambda: "drops device taints" in both.second.held_back())
            server.gates(DEFAULT)
            await ended_at(both, Doors.BOTH)
            assert both.second.held_back() == ""


async def test_a_gate_that_is_turned_off_is_found_with_the_first_taint_that_is_lost(short_dir: Path) -> None:
    with api_server() as server:
        async with begun(short_dir, server, 3, Doors.BOTH) as both:
            server.gates(GATES_OFF)
            both.pod_gets("gpu-0000")
            await eventually(lambda: "drops device taints" in both.second.held_back())
            await ended_at(both, Doors.PLUGIN)
            server.gates(DEFAULT)
            both.second._parts.doors.features.doubt()
            await eventually(lambda: both.in_slices() == {"gpu-0001", "gpu-0002"})
            assert both.effects("gpu-0000") == WITHDRAWN


async def test_where_one_server_of_several_drops_taints_they_are_tried_again(short_dir: Path) -> None:
    """The one that is asked keeps taints already, or still, when the one that is written to does not."""
    with api_server() as server:
        both = Both(short_dir, server, gpus(3), Doors.BOTH)
        taints = both.second._parts.slices._taints
        async with both.running():
            await ended_at(both, Doors.BOTH)
            asked = len(server.requests.of("create"))
            server.gates(GATES_OFF)
            server.faults.add("create", status=503, count=-1)
            both.pod_gets("gpu-0000")
            await eventually(lambda: len(server.requests.of("create")) > asked, "it is doubted")
            await eventually(lambda: both.in_slices() == {"gpu-0001", "gpu-0002"})
            assert taints.unsure
            server.requests.clear()
            await eventually(lambda: len(server.requests.of("create")) > 1, "it is asked again and again")
            assert server.requests.writes("resourceslices") == [
                each for each in server.requests.of("create") if each.query.get("dryRun")
            ], "it is left out, and that is all"
            server.gates(DEFAULT)
            server.faults.clear()
            taints._wait = 0.1
            await eventually(lambda: both.effects("gpu-0000") == WITHDRAWN)
            assert taints.withdraw
            assert both.second.held_back() == ""
