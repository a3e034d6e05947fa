"""A rule gets another door while the agent runs: what is asked and written, and that it ends right."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from driver.claims.model import ClaimError, ClaimReference
from node.inventory.model import Snapshot
from node.rules import Door, Doors
from ostler.admin.holds import HoldsView
from sandbox.apiserver.server import ApiServer
from tests.making.both_doors import Both, begun, ended_at, gpus
from tests.making.watched_node import NODE, WatchedWorld
from tests.waiting import eventually


def written(server: ApiServer) -> list[tuple[str, str, int, list[str]]]:
    """Of every write of a slice the verb, its name, its pool's generation and the keys of its devices' taints."""
    return [
        (
            each.verb,
            each.name,
            each.body["spec"]["pool"]["generation"],
            sorted(
                {taint["key"] for device in each.body["spec"].get("devices", ()) for taint in device.get("taints", ())}
            ),
        )
        for each in server.requests.writes("resourceslices")
        if each.verb in ("create", "update")
    ]


async def test_a_thousand_devices_move_with_one_list_of_claims_and_few_writes(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    for n in range(600):
        world.claim(f"c{n}", "elsewhere", pool="node-2")
    async with begun(short_dir, server, 1000, Doors.DRA) as both:
        assert len(server.requests.writes()) <= 16 + 1, "a slice each, and the dry run"
        server.requests.clear()
        both.use(Doors.PLUGIN)
        await ended_at(both, Doors.PLUGIN)
        lists = server.requests.of("list", "resourceclaims")
        assert [bool(each.query.get("continue")) for each in lists] == [False, True], "two pages of one list"
        assert len(server.requests.writes()) <= 2 * 16, f"tainted, and left out: {written(server)}"
        server.requests.clear()
        both.use(Doors.DRA)
        await ended_at(both, Doors.DRA)
        assert both.asked("list", "resourceclaims") == 0
        assert len(server.requests.writes()) <= 2 * 16, f"tainted, and free: {written(server)}"
    assert both.asked("watch", "resourceclaims") == 0


async def test_a_device_that_a_claim_has_moves_when_the_claim_is_gone_and_one_who_looks_on_holds_nothing_up(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    async with begun(short_dir, server, 3, Doors.DRA) as both:
        world.admin_namespace()
        looks = world.claim("looks", "gpu-0001", users=("uid-1",), adminAccess=True)
        world.claim("has", "gpu-0002")
        both.use(Doors.PLUGIN)
        await eventually(lambda: both.at_plugin() == {"gpu-0000", "gpu-0001"})
        assert both.effects("gpu-0002") == [("ostler.dev/moving", "NoSchedule")]
        await eventually(lambda: both.second.leaving() == {"gpu-0002": "claim team/has names it"})
        desk = HoldsView(both.books, both.publisher, both.second, both.settings.rules)
        (told,) = desk.report().devices
        (withheld,) = [each for each in told.withheld if each.door == Door.PLUGIN]
        assert withheld.waits_for.endswith("; now: claim team/has names it")
        world.free("has")
        await ended_at(both, Doors.PLUGIN)
        # Allocated before the device left its slice, and prepared after that.
        assert await both.second._parts.claims.prepare(ClaimReference("team", "looks", looks))
        uid = world.claim("late", "gpu-0002", users=("uid-1",))
        with pytest.raises(ClaimError, match="device gpu-0002 is not offered on this node"):
            await both.second._parts.claims.prepare(ClaimReference("team", "late", uid))


async def test_a_device_that_vanishes_has_no_claims_listed_and_the_next_handover_answers_for_it(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    async with begun(short_dir, server, 3, Doors.DRA) as both:
        both.snapshot = Snapshot(2, gpus(2))
        both.publisher.submit(both.snapshot)
        await ended_at(both, Doors.DRA)
        assert both.withdrawal.leaving() == {"gpu-0002"}
        assert both.second.leaving() == {}
        both.use(Doors.PLUGIN)
        await ended_at(both, Doors.PLUGIN)
        assert both.asked("list", "resourceclaims") == 1
    assert both.events.of("WithdrawalNotConfirmed") == []


async def test_a_rule_that_flips_again_and_again_ends_where_it_was_last(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    """Slices are written late, and the kubelet's readings as well: one a second at most."""
    async with begun(short_dir, server, 8, Doors.PLUGIN) as both:
        for turn, last in enumerate((Doors.DRA, Doors.PLUGIN, Doors.BOTH)):
            server.faults.add("update", status=503, resource="resourceslices", count=2, retry_after=None)
            for number in range(12):
                both.use((Doors.PLUGIN, Doors.DRA, Doors.PLUGIN, Doors.BOTH)[number % 4])
                await asyncio.sleep(0.03 * ((number * 7 + turn) % 5))
            both.use(last)
            await ended_at(both, last)


async def test_the_label_of_the_node_moves_its_devices_and_a_node_made_anew_goes_by_its_own(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    def label(door: str | None) -> None:
        world.store.patch("nodes", NODE, {"metadata": {"labels": {"ostler.dev/door": door}}})

    async with begun(short_dir, server, 2, Doors.PLUGIN) as both:
        for door in ("dra", "both", "plugin", "dra"):
            label(door)
            await ended_at(both, Doors(door))
        label("none")
        said = "label ostler.dev/door: 'none' is not a door; write plugin, dra or both, or remove the label "
        await eventually(lambda: both.second.problems_of_doors() == (f"{said}(it is as if it were not there)",))
        world.store.delete("nodes", NODE)
        world.store.create("nodes", {"metadata": {"name": NODE, "labels": {"ostler.dev/door": "both"}}})
        await ended_at(both, Doors.BOTH)
        assert both.second.problems_of_doors() == ()
        world.store.delete("nodes", NODE)
        world.store.create("nodes", {"metadata": {"name": NODE}})
        await ended_at(both, Doors.PLUGIN)


async def test_without_the_api_server_a_device_stays_withdrawn_and_moves_when_it_is_back(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    async with begun(short_dir, server, 2, Doors.DRA) as both:
        server.down()
        both.use(Doors.PLUGIN)
        await eventually(lambda: both.second.leaving() and both.second.problems())
        assert both.at_plugin() == set()
        assert both.marked()
        server.up()
        await ended_at(both, Doors.PLUGIN, within=120)


async def test_a_process_that_begins_without_the_api_server_gives_nothing_to_pods_that_claims_were_shown(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    async with begun(short_dir, server, 2, Doors.DRA) as before:
        assert before.marked()
    server.down()
    both = Both(short_dir, server, gpus(2), Doors.PLUGIN)
    async with both.running():
        # Until the kubelet has told what pods have, one may have it, and is not to be disturbed.
        await eventually(lambda: len(both.second.leaving()) == 2 and both.at_plugin() == set())
        assert both.marked()
        server.up()
        await ended_at(both, Doors.PLUGIN, within=120)
