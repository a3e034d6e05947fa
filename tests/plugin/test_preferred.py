"""GetPreferredAllocation: ids mapped to cells and back, NICs near fresh GPUs, never an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from node.inventory.model import Attribute, Device, DeviceKind
from node.offer import Cause, OfferedDevice
from node.topology.cells import topology_of
from node.topology.model import Place, Topology
from plugin.preferred import PlacementMap, Preference
from tests.making.places import even, gpu, nic, path_of
from tests.making.plugin_door import offered

EIGHT = {f"g{index}": offered(f"g{index}", index // 4) for index in range(8)}
UNKNOWN = PlacementMap()


def prefer(
    devices: Mapping[str, OfferedDevice], available: Sequence[str], required: Sequence[str], size: int
) -> list[str]:
    """Without topology."""
    return Preference(devices, UNKNOWN).prefer(available, required, size)


def device(name: str, kind: DeviceKind = DeviceKind.GPU, parent: str | None = None, **attributes: str) -> OfferedDevice:
    facts = tuple(Attribute(key, text) for key, text in sorted(attributes.items()))
    return OfferedDevice(name, Device(name, kind, "vendor", parent=parent, attributes=facts), healthy=True)


def by_id(*devices: OfferedDevice) -> dict[str, OfferedDevice]:
    return {each.id: each for each in devices}


GPUS = by_id(*(device(f"gpu-{number}") for number in range(8)))


def test_one_numa_node_is_preferred_where_nothing_else_is_known() -> None:
    assert prefer(EIGHT, ["g2", "g5", "g3", "g4", "g6", "g7"], [], 4) == ["g4", "g5", "g6", "g7"]


def test_the_node_that_is_left_most_tightly_filled_is_taken() -> None:
    assert prefer(EIGHT, ["g0", "g1", "g2", "g4", "g5"], [], 2) == ["g4", "g5"]


def test_what_must_be_included_comes_first_and_its_node_is_followed() -> None:
    assert prefer(EIGHT, list(EIGHT), ["g6"], 3) == ["g6", "g4", "g5"]


def test_two_nodes_are_used_when_one_is_not_enough() -> None:
    assert prefer(EIGHT, list(EIGHT), [], 6) == ["g0", "g1", "g2", "g3", "g4", "g5"]


def test_unhealthy_devices_come_last() -> None:
    devices = {"a": offered("a", 0, healthy=False), "b": offered("b", 0), "c": offered("c", 0)}
    assert prefer(devices, ["a", "b", "c"], [], 2) == ["b", "c"]
    assert prefer(devices, ["a", "b"], [], 2) == ["b", "a"]


def test_odd_requests_get_the_best_there_is() -> None:
    assert prefer(EIGHT, ["g0"], [], 5) == ["g0"]
    assert prefer(EIGHT, [], [], 2) == []
    assert prefer(EIGHT, list(EIGHT), ["g3", "g1", "g2"], 2) == ["g1", "g2"]
    assert prefer(EIGHT, list(EIGHT), [], -1) == []
    assert prefer({}, ["x", "y"], [], 1) == ["x"]
    assert prefer(EIGHT, ["g1", "g1", "g0", "g1"], ["g1", "g1"], 2) == ["g1", "g0"]
    assert prefer(EIGHT, ["g4", "g0"], ["elsewhere"], 2) == ["elsewhere", "g0"]


def test_whole_gpus_follow_the_cells() -> None:
    preference = Preference(GPUS, PlacementMap(even(8)))
    assert preference.prefer([name for name in GPUS if name != "gpu-1"], [], 1) == ["gpu-0"]
    assert preference.prefer([name for name in GPUS if name != "gpu-1"], [], 2) == ["gpu-2", "gpu-3"]
    assert preference.prefer(list(GPUS), ["gpu-5"], 2) == ["gpu-5", "gpu-4"]
    assert preference.prefer(["gpu-1", "gpu-6", "gpu-7"], [], 2) == ["gpu-6", "gpu-7"]


def parts(of: int, count: int, kind: DeviceKind = DeviceKind.MIG) -> list[OfferedDevice]:
    return [device(f"part-{of}-{number}", kind, f"gpu-{of}") for number in range(count)]


def test_instances_are_packed_on_the_gpu_with_fewest_free_ones() -> None:
    for kind in (DeviceKind.MIG, DeviceKind.PARTITION):
        devices = by_id(*parts(0, 7, kind), *parts(1, 7, kind), *parts(4, 7, kind))
        preference = Preference(devices, PlacementMap(even(8)))
        available = [id_ for id_ in devices if id_ not in ("part-1-0", "part-1-3", "part-1-4")]
        assert preference.prefer(available, [], 1) == ["part-1-1"]
        assert preference.prefer(available, [], 3) == ["part-1-1", "part-1-2", "part-1-5"]
        assert preference.prefer(available, [], 5) == [f"part-4-{number}" for number in range(5)]
        assert preference.prefer(available, ["part-0-6"], 2) == ["part-0-6", "part-0-0"]


def test_instances_of_several_gpus_come_from_one_cell_and_leave_a_rest_on_one_gpu() -> None:
    devices = by_id(*parts(0, 3), *parts(1, 2), *parts(4, 4))
    preference = Preference(devices, PlacementMap(even(8)))
    assert preference.prefer(list(devices), [], 5) == [*devices][:5]
    assert preference.prefer([id_ for id_ in devices if id_ != "part-4-0"], [], 4) == [
        "part-0-0",
        "part-0-1",
        "part-1-0",
        "part-1-1",
    ]


def test_gpus_that_are_in_no_cell_are_served_as_well() -> None:
    devices = by_id(*GPUS.values(), device("new-a"), device("new-b"))
    preference = Preference(devices, PlacementMap(even(8)))
    assert preference.prefer(list(devices), [], 2) == ["gpu-0", "gpu-1"]
    assert preference.prefer(list(devices), ["new-a"], 2) == ["new-a", "new-b"]
    assert len(preference.prefer(list(devices), [], 9)) == 9


def beside(number: int) -> tuple[str, ...]:
    return (*path_of(number, 8)[:-1], f"nic-port-{number}")


PLACES = [gpu(number, path_of(number, 8), number // 4) for number in range(8)]
PORTS = [nic(number, beside(number), number // 4) for number in range(0, 8, 2)]
WITH_NICS = topology_of([*PLACES, *PORTS])
NICS = by_id(*(device(place.name, DeviceKind.RDMA) for place in PORTS))


def virtual(of: int, count: int, **how: str) -> list[OfferedDevice]:
    """Functions of NIC ``of``, which name it by ``parent`` or, given ``pfPciAddress``, by that."""
    parent = None if how else f"nic-{of}"
    return [device(f"vf-{of}-{number}", DeviceKind.NIC, parent, **how) for number in range(count)]


class Near:
    """A preference of devices near to these GPUs."""

    def __init__(self, devices: Mapping[str, OfferedDevice], *gpus: int) -> None:
        self._preference = Preference(devices, PlacementMap(WITH_NICS))
        self._places = [PLACES[number] for number in gpus]

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> list[str]:
        return self._preference.prefer(available, required, size, self._places)


def test_a_nic_comes_from_beside_the_fresh_gpu() -> None:
    assert Near(NICS, 5).prefer(list(NICS), [], 1) == ["nic-4"]
    assert Near(NICS, 5).prefer(["nic-0", "nic-2", "nic-6"], [], 1) == ["nic-6"]
    assert Near(NICS, 7, 1).prefer(list(NICS), [], 2) == ["nic-0", "nic-6"]


def test_virtual_functions_are_where_their_physical_function_is() -> None:
    for devices in (
        by_id(*virtual(0, 4), *virtual(6, 4)),
        by_id(*(virtual(0, 4, pfPciAddress="0000:80:00.0")), *virtual(6, 4, pfPciAddress="0000:86:00.0")),
    ):
        assert Near(devices, 6).prefer(list(devices), [], 1) == ["vf-6-0"]
        assert Near(devices, 0, 6).prefer(list(devices), [], 2) == ["vf-0-0", "vf-6-0"]


def test_without_a_fresh_gpu_functions_are_packed() -> None:
    devices = by_id(*virtual(0, 4), *virtual(2, 4), *virtual(6, 4))
    available = [id_ for id_ in devices if id_ != "vf-2-0"]
    assert Near(devices).prefer(available, [], 1) == ["vf-2-1"]
    assert Near(devices).prefer(available, [], 3) == ["vf-2-1", "vf-2-2", "vf-2-3"]
    assert Near(devices).prefer(available, [], 4) == [f"vf-0-{number}" for number in range(4)]
    assert Near(devices).prefer(available, [], 6) == ["vf-0-0", "vf-0-1", "vf-0-2", "vf-0-3", "vf-2-1", "vf-2-2"]


def test_nics_without_a_fresh_gpu_come_from_one_numa_node() -> None:
    assert Near(NICS).prefer(["nic-2", "nic-4", "nic-6"], [], 2) == ["nic-4", "nic-6"]


def test_functions_whose_place_nobody_knows_are_packed_by_numa_node() -> None:
    devices = {f"n{number}": offered(f"n{number}", number % 2) for number in range(5)}
    devices = {id_: replace(each, device=replace(each.device, kind=DeviceKind.NIC)) for id_, each in devices.items()}
    assert prefer(devices, list(devices), [], 2) == ["n1", "n3"]


def beside_nics(devices: Mapping[str, OfferedDevice], available: Sequence[str], size: int, *nics: int) -> list[str]:
    """What is chosen near NICs at these GPUs."""
    places = [nic(number, beside(number), number // 4) for number in nics]
    return Preference(devices, PlacementMap(WITH_NICS)).prefer(available, [], size, places)


def test_a_gpu_comes_from_beside_the_nic_that_its_container_has() -> None:
    assert beside_nics(GPUS, list(GPUS), 1, 5) == ["gpu-4"]
    assert beside_nics(GPUS, [name for name in GPUS if name != "gpu-4"], 1, 5) == ["gpu-5"]
    assert beside_nics(GPUS, ["gpu-0", "gpu-1", "gpu-6", "gpu-7"], 1, 5) == ["gpu-6"]
    assert beside_nics(GPUS, [name for name in GPUS if name != "gpu-1"], 1, 5) == ["gpu-4"], "though a pair is broken"


def test_several_gpus_get_the_smallest_island_and_of_equal_ones_that_beside_the_nic() -> None:
    assert beside_nics(GPUS, list(GPUS), 2, 5) == ["gpu-4", "gpu-5"]
    assert beside_nics(GPUS, [name for name in GPUS if name != "gpu-5"], 2, 5) == ["gpu-6", "gpu-7"]
    assert beside_nics(GPUS, ["gpu-0", "gpu-1", "gpu-4", "gpu-7"], 2, 5) == ["gpu-0", "gpu-1"]
    assert beside_nics(GPUS, list(GPUS), 4, 5) == ["gpu-4", "gpu-5", "gpu-6", "gpu-7"]


def test_instances_come_from_the_gpu_beside_the_nic() -> None:
    devices = by_id(*parts(0, 7), *parts(1, 3), *parts(6, 7))
    assert beside_nics(devices, list(devices), 1, 6) == ["part-6-0"]
    assert beside_nics(devices, list(devices), 2, 0) == ["part-1-0", "part-1-1"], "of two that are as near"


def test_resources_know_their_gpus_and_whether_they_are_nics() -> None:
    placement = PlacementMap(WITH_NICS)
    assert Preference(by_id(*parts(3, 2)), placement).gpus == {"part-3-0": PLACES[3], "part-3-1": PLACES[3]}
    assert Preference(by_id(*virtual(2, 1)), placement).nics == {"vf-2-0": PORTS[1]}
    assert [bool(Preference(devices, placement).nics) for devices in (NICS, GPUS, {**NICS, **GPUS}, {})] == [
        True,
        False,
        False,
        False,
    ]


MIXED = by_id(*GPUS.values(), *parts(2, 3), *NICS.values(), *virtual(0, 3), device("lost"))
ids = st.sampled_from([*MIXED, "unknown-1", "unknown-2"])


@st.composite
def preferences(draw: st.DrawFn) -> tuple[dict[str, OfferedDevice], Preference, Sequence[Place]]:
    """Any devices, some of them sick, in any placement, and what they should be near to."""
    present, sick = (draw(st.sets(st.sampled_from(sorted(MIXED)))) for _ in range(2))
    devices = {id_: replace(each, healthy=id_ not in sick) for id_, each in MIXED.items() if id_ in present}
    placement = PlacementMap(draw(st.sampled_from([Topology(), WITH_NICS, even(8)])))
    near: Sequence[Place] = draw(st.sampled_from([(), PLACES[3:5], PORTS[1:3], [gpu(77)]]))
    return devices, Preference(devices, placement), near


@given(preferences(), st.lists(ids), st.lists(ids), st.integers(-3, 24), st.randoms())
def test_an_answer_is_always_possible_right_and_the_same(
    made: tuple[dict[str, OfferedDevice], Preference, Sequence[Place]],
    available: list[str],
    required: list[str],
    size: int,
    shuffler: Random,
) -> None:
    devices, preference, near = made
    chosen = preference.prefer(available, required, size, near)
    shuffler.shuffle(available)
    shuffler.shuffle(required)
    assert chosen == preference.prefer(available, required, size, near), "the order of the request decides nothing"
    assert len(set(chosen)) == len(chosen) == min(max(size, 0), len(set(available) | set(required)))
    assert set(chosen) <= set(available) | set(required)
    assert set(required) <= set(chosen) or (len(set(required)) > size and set(chosen) <= set(required))
    good = [id_ for id_ in set(available) - set(required) if id_ in devices and devices[id_].healthy]
    taken = [id_ for id_ in chosen if id_ not in required]
    assert set(taken) <= set(good) or set(good) <= set(taken), "others only when no healthy one is left"


def test_a_cell_that_claims_have_begun_is_not_the_one_to_go_on_with() -> None:
    devices = by_id(*(offered(f"g{number}", number // 4) for number in range(8)))
    claimed = replace(devices["g7"], healthy=False, cause=Cause.OTHER_DOOR)
    free = [id_ for id_ in devices if id_ != "g7"]
    assert prefer(devices, free, [], 1) == ["g4"], "a pod that has it"
    assert prefer({**devices, "g7": claimed}, free, [], 1) == ["g0"], "a claim that has it"
    assert prefer({**devices, "g7": claimed}, free, [], 4) == ["g0", "g1", "g2", "g3"]
    assert prefer({**devices, "g7": claimed}, ["g3", *free[4:]], [], 3) == ["g4", "g5", "g6"]
