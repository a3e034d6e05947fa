"""Claims on recorded nodes as the stock scheduler allocates them: islands, packing, GPUs with their NICs."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from driver.devices.view import DraDevice
from node.inventory.model import is_gone
from node.inventory.places import place_of
from node.topology.model import Cell, Proximity, proximity
from node.topology.packing import CellTree, pair_score
from tests.driver.devices.recorded import GPUS, NODES, WHOLE_GPUS, snapshot, snapshot_of, view
from tests.driver.devices.scheduling import DeviceScheduler, Json, claim, island, matching, request, slices
from tests.making.dra_door import door_view

SIZES = [(name, count) for name, most in GPUS.items() for count in (2, 3, 4, 8, 16) if count <= most]
CORRECTED = {"vm-flat-8"}


def gpus(name: str) -> list[DraDevice]:
    return [item for item in view(name).devices if item.device.kind == "gpu"]


def smallest(cell: Cell, chosen: list[str]) -> int:
    """GPUs of the smallest cell that holds all of these."""
    inner = next((child for child in cell.children if set(chosen) <= set(child.gpus)), None)
    return len(cell.gpus) if inner is None else smallest(inner, chosen)


def score(name: str, chosen: list[str]) -> int:
    places = [place for place in snapshot(name).topology.places if place.name in chosen]
    return sum(pair_score(one, two) for one, two in combinations(places, 2))


@pytest.mark.parametrize("name", NODES)
def test_the_table_of_gpus_is_that_of_the_nodes(name: str) -> None:
    assert len(gpus(name)) == GPUS.get(name, 0)
    assert (snapshot(name).topology.root is not None) == (name in GPUS)


@pytest.mark.parametrize(("name", "count"), SIZES)
def test_a_claim_that_matches_a_cell_gets_an_island_as_good_as_the_plugin_doors(name: str, count: int) -> None:
    root = snapshot(name).topology.root
    assert root is not None
    scheduler = DeviceScheduler(slices(view(name).devices))
    found = scheduler.allocate(island(count))
    assert found is not None
    chosen = found[1]
    tree = CellTree(root, {place.name: place for place in snapshot(name).topology.places})
    offered = {item.device.name for item in gpus(name)}
    free = [int(leaf in offered) for leaf in tree.leaves]
    picks = tree.choose(free, [0] * len(free), count)
    best = [leaf for leaf, taken in zip(tree.leaves, picks, strict=True) if taken]
    assert smallest(root, chosen) == smallest(root, best)
    # Three of an island of four are the first three: what matches, the scheduler does not compare.
    assert count == 3 or score(name, chosen) == score(name, best)


@pytest.mark.parametrize(("name", "count"), [pair for pair in SIZES if pair[1] != 3])
def test_a_node_gives_all_its_gpus_in_islands_of_one_size(name: str, count: int) -> None:
    scheduler = DeviceScheduler(slices(view(name).devices))
    islands = []
    while (found := scheduler.allocate(island(count))) is not None:
        islands.append(found[1])
    assert len(islands) == len(gpus(name)) // count
    assert len({gpu for each in islands for gpu in each}) == count * len(islands)


@pytest.mark.parametrize("name", GPUS)
def test_without_any_constraint_the_first_devices_of_the_slices_are_an_island(name: str) -> None:
    root = snapshot(name).topology.root
    assert root is not None
    for count in (2, 4, 8):
        if count <= len(gpus(name)):
            taken = DeviceScheduler(slices(view(name).devices)).allocate(claim(request("gpus", count=count)))
            matched = DeviceScheduler(slices(view(name).devices)).allocate(island(count))
            assert taken is not None
            assert matched is not None
            assert sorted(taken[1]) == sorted(matched[1])


def single(scheduler: DeviceScheduler) -> str:
    found = scheduler.allocate(island(1))
    assert found is not None
    return found[1][0]


def test_single_gpus_fill_one_cell_before_the_next_is_begun() -> None:
    scheduler = DeviceScheduler(slices(view("h100-sxm-8").devices))
    cells = {
        item.device.name: {each.name: each.value for each in item.placement}["cell4"] for item in gpus("h100-sxm-8")
    }
    assert [cells[single(scheduler)] for _ in range(4)] == ["socket-0"] * 4
    assert scheduler.allocate(island(4)) is not None


def without(name: str, *gone: int) -> list[DraDevice]:
    """The node's GPUs after some, by their number, were taken out."""
    devices = [device for device in snapshot(name).devices if device.kind == "gpu" and not is_gone(device)]
    left = tuple(device for number, device in enumerate(devices) if number not in gone)
    return list(door_view(snapshot_of(left), [WHOLE_GPUS]).devices)


def test_single_gpus_take_those_of_a_cell_that_is_not_whole_anyway() -> None:
    scheduler = DeviceScheduler(slices(without("h100-sxm-8", 2)))
    assert {single(scheduler) for _ in range(3)} == {
        item.device.name for item in without("h100-sxm-8", 2) if item.device.numa_node == 0
    }
    assert scheduler.allocate(island(4)) is not None


def refused(devices: list[DraDevice], seed: int) -> int:
    """Claims for islands that had to wait although as many GPUs were free, while pods come and go."""
    random = Random(seed)
    scheduler = DeviceScheduler(slices(devices))
    waiting = 0
    free = len(devices)
    sizes: dict[int, int] = {}
    for _ in range(60):
        if sizes and random.random() < 0.5:
            number = random.choice(list(sizes))
            scheduler.release(number)
            free += sizes.pop(number)
        count = random.choice((1, 1, 1, 2, 2, 4))
        if count <= free:
            found = scheduler.allocate(island(count))
            if found is None:
                waiting += 1
            else:
                sizes[found[0]] = count
                free -= count
    return waiting


@pytest.mark.parametrize(("name", "gone"), [("dgx1-v100-8", ()), ("dgx1-v100-8", (5,)), ("h100-sxm-8", (5,))])
def test_the_order_keeps_islands_whole_while_pods_come_and_go(name: str, gone: tuple[int, ...]) -> None:
    devices = without(name, *gone)
    by_chance = devices.copy()
    Random(7).shuffle(by_chance)
    by_name = sorted(devices, key=lambda item: item.device.name)
    ours, named, chance = (sum(refused(order, seed) for seed in range(40)) for order in (devices, by_name, by_chance))
    assert ours < named
    assert ours < chance


def with_nic(selector: str = "") -> Json:
    return claim(
        request("gpu"),
        request("nic", "nic.ostler.dev", selector=selector),
        constraints=[matching("ostler.dev/switch")],
    )


@pytest.mark.parametrize("name", ["a100-sxm-8", "h100-sxm-8", "mi300x-8", "vm-flat-8"])
def test_every_gpu_goes_with_the_nic_beside_it_until_all_are_given(name: str) -> None:
    corrected = name in CORRECTED
    scheduler = DeviceScheduler(slices(view(name, corrected=corrected).devices))
    places = {place.name: place for place in snapshot(name, corrected=corrected).topology.places}
    for _ in range(8):
        found = scheduler.allocate(with_nic())
        assert found is not None
        gpu, nic = (places[device] for device in found[1])
        assert proximity(gpu, nic) in (Proximity.PIX, Proximity.PXB)
        assert proximity(gpu, nic) is min(
            (proximity(gpu, other) for other in places.values() if not other.gpu), key=lambda each: each.rank
        )
    assert scheduler.allocate(with_nic()) is None


def test_four_gpus_of_an_island_go_with_four_nics_of_their_switches_by_one_request_for_each_pair() -> None:
    scheduler = DeviceScheduler(slices(view("h100-sxm-8").devices))
    pairs = [(request(f"gpu{i}"), request(f"nic{i}", "nic.ostler.dev")) for i in range(4)]
    wanted = claim(
        *(each for pair in pairs for each in pair),
        constraints=[
            matching("ostler.dev/cell4", *(f"gpu{i}" for i in range(4))),
            *(matching("ostler.dev/switch", f"gpu{i}", f"nic{i}") for i in range(4)),
        ],
    )
    found = scheduler.allocate(wanted)
    assert found is not None
    places = {item.device.name: place_of(item.device) for item in view("h100-sxm-8").devices}
    assert {places[device].numa_node for device in found[1]} == {0}


def test_gpu_and_nic_can_be_matched_by_the_standard_pcie_root() -> None:
    scheduler = DeviceScheduler(slices(view("h100-sxm-8").devices))
    by_root = claim(
        request("gpu"),
        request("nic", "nic.ostler.dev"),
        constraints=[matching("resource.kubernetes.io/pcieRoot")],
    )
    found = scheduler.allocate(by_root)
    assert found is not None
    devices = {item.device.name: item.device for item in view("h100-sxm-8").devices}
    assert len({devices[name].attribute("resource.kubernetes.io/pcieRoot") for name in found[1]}) == 1


def test_a_nic_alone_is_one_that_stands_beside_no_gpu() -> None:
    found = DeviceScheduler(slices(view("h100-sxm-8").devices)).allocate(claim(request("nic", "nic.ostler.dev")))
    assert found is not None
    assert found[1] == ["nic-0000-29-00-1"]
