"""GPUs in parts through the whole DRA door, with an API server that keeps counters, drops them, or begins to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from driver.claims.model import ClaimReference
from node.inventory.model import Device, DeviceKind, Snapshot
from node.partitions import partition_name
from node.rules import Doors, Rule, Selector
from node.values import replace
from ostler.agent.dra_parts import PartitionMaking
from sandbox.apiserver.server import GATES_OFF, ApiServer
from scheduling.api.validation.shapes import DEFAULT, Gates
from tests.making.both_doors import RESOURCE, Both, api_server
from tests.making.partitions import H100, FakeHardware, parted
from tests.making.watched_node import TEAM, WatchedWorld
from tests.waiting import eventually

RULE = Rule(RESOURCE, Selector(kinds=(DeviceKind.GPU,)), partitions=True)
GPUS = (parted(0), parted(1))
PART = partition_name(GPUS[0].name, H100[0])
EVERYTHING = len(GPUS) * (1 + len(H100))


class Divided:
    """Both doors of a node whose GPUs are given in parts."""

    def __init__(
        self, folder: Path, server: ApiServer, gpus: tuple[Device, ...] = GPUS, door: Doors = Doors.DRA
    ) -> None:
        self.hardware = FakeHardware(folder / "hardware", gpus)
        making = PartitionMaking(self.hardware, self.rescan)
        self.both = Both(folder, server, self.hardware.devices(), door, rule=RULE, partitions=making)

    async def rescan(self, _: frozenset[str] = frozenset()) -> None:
        devices = self.hardware.devices()
        if devices != self.both.snapshot.devices:
            self.both.snapshot = Snapshot(self.both.snapshot.generation + 1, devices)
            self.both.publisher.submit(self.both.snapshot)


def every(server: ApiServer) -> list[dict[str, Any]]:
    found: list[Any] = server.store.list("resourceslices")
    return found


def slices(server: ApiServer) -> list[dict[str, Any]]:
    """The specs of the slices, that of counters first."""
    return sorted((each["spec"] for each in every(server)), key=lambda spec: "devices" in spec)


async def test_partitions_are_published_behind_their_counters(short_dir: Path, server: ApiServer) -> None:
    divided = Divided(short_dir, server)
    async with divided.both.running():
        await eventually(lambda: len(divided.both.in_slices()) == EVERYTHING)
        counters, *devices = slices(server)
        assert [each["name"] for each in counters["sharedCounters"]] == [gpu.name for gpu in GPUS]
        assert [len(each["devices"]) for each in devices] == [2 * (1 + len(H100))]
        assert divided.both.events.of("SlicesNotPublished") == []


def stripped(specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Devices and counters, without the taint that a released device has until its pod is proved to be gone."""
    return [
        {key: found for key, found in each.items() if key != "taints"}
        for spec in specs
        for each in (*spec.get("devices", ()), *spec.get("sharedCounters", ()))
    ]


async def test_a_claim_changes_nothing_that_is_published_but_for_the_mode_of_its_gpu(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    divided = Divided(short_dir, server)
    claims = divided.both.second._parts.claims
    named = ClaimReference(TEAM, "one", world.claim("one", PART, users=("pod-1",)))
    async with divided.both.running():
        await eventually(lambda: len(divided.both.in_slices()) == EVERYTHING)
        (answer,) = await claims.prepare(named)
        assert answer.device == PART
        await eventually(lambda: '"migEnabled": {"bool": true}' in json.dumps(slices(server)))
        before = stripped(slices(server))
        server.requests.clear()
        for _ in range(3):
            await claims.unprepare(named)
            assert divided.hardware.instances == []
            await claims.prepare(named)
        assert len(divided.hardware.instances) == 1
        await eventually(lambda: len(divided.both.in_slices()) == EVERYTHING)
        await eventually(lambda: stripped(slices(server)) == before)
        for request in server.requests.writes("resourceslices"):
            changed = stripped([request.body["spec"]])
            assert all(each in before for each in changed)


async def test_where_counters_are_dropped_gpus_are_whole_until_they_are_kept(short_dir: Path) -> None:
    with api_server(GATES_OFF) as server:
        divided = Divided(short_dir, server)
        divided.both.second._parts.doors.features._look_every = 0.2
        async with divided.both.running():
            await eventually(lambda: divided.both.in_slices() == {gpu.name for gpu in GPUS})
            assert "drops the counters of slices" in divided.both.second.held_back()
            assert "sharedCounters" not in slices(server)[0]
            server.gates(DEFAULT)
            await eventually(lambda: len(divided.both.in_slices()) == EVERYTHING)
            assert divided.both.second.held_back() == ""


async def test_a_server_that_begins_to_drop_counters_is_found_by_what_it_stores(short_dir: Path) -> None:
    with api_server() as server:
        divided = Divided(short_dir, server)
        async with divided.both.running():
            await eventually(lambda: len(divided.both.in_slices()) == EVERYTHING)
            server.gates(Gates(partitionable_devices=False))
            for name in [each["metadata"]["name"] for each in every(server)]:
                server.store.delete("resourceslices", name)  # What is stored would keep its counters.
            await eventually(lambda: divided.both.in_slices() == {gpu.name for gpu in GPUS})
            assert "drops the counters of slices" in divided.both.second.held_back()


async def test_a_gpu_moves_to_pods_when_no_claim_names_its_partitions(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    divided = Divided(short_dir, server, GPUS[:1])
    both = divided.both
    world.claim("one", PART, users=("pod-1",))
    async with both.running():
        await eventually(lambda: len(both.in_slices()) == 1 + len(H100))
        both.use(Doors.PLUGIN)
        await eventually(lambda: any("claim team/one names it" in why for why in both.second.leaving().values()))
        assert both.at_plugin() == set()
        world.free("one")
        await eventually(lambda: both.at_plugin() == {GPUS[0].name})


async def test_a_gpu_of_both_doors_leaves_mig_mode_when_no_claim_has_a_part_of_it(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    gpu = GPUS[0].name
    # The kubelet of these tests knows a device by the end of its name.
    divided = Divided(short_dir, server, (replace(GPUS[0], uuid=f"GPU-{gpu[-4:]}"),), Doors.BOTH)
    both = divided.both
    claims = both.second._parts.claims
    named = ClaimReference(TEAM, "one", world.claim("one", PART, users=("pod-1",)))
    async with both.running():
        await eventually(lambda: both.at_plugin() == {gpu} and len(both.in_slices()) == 1 + len(H100))
        await claims.prepare(named)
        await eventually(lambda: both.at_plugin() == set())
        assert divided.hardware.devices()[0].attribute("migEnabled") is True
        world.free("one")
        await claims.unprepare(named)
        await eventually(lambda: divided.hardware.devices()[0].attribute("migEnabled") is False)
        await eventually(lambda: both.at_plugin() == {gpu} and len(both.in_slices()) == 1 + len(H100))
        both.pod_gets(gpu)
        await eventually(lambda: both.in_slices() == set(), "what pods have is no claim's, nor are its parts")
