"""The switch that a GPU and a NIC have in common: the innermost one, and none where nobody knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.devices.placement import Spot, switches
from node.topology.model import Place, Proximity, proximity
from tests.driver.devices.recorded import snapshot, view


def found(*spots: str) -> dict[str, str]:
    """Spots as ``G0 host/port/switch``; a name that begins with G is a GPU."""
    made = []
    for spot in spots:
        name, _, path = spot.partition(" ")
        made.append(Spot(name, name.startswith("G"), tuple(path.split("/")) if path else ()))
    return dict(switches(made))


@pytest.mark.parametrize(
    ("spots", "expected"),
    [
        # One switch for both.
        (["G0 h/p/s/a", "N0 h/p/s/b"], {"G0": "s", "N0": "s"}),
        # The innermost one counts, for each pair its own.
        (["G0 h/p/s/i", "N0 h/p/s/i", "G1 h/p/s/j", "N1 h/p/s/j"], {"G0": "i", "N0": "i", "G1": "j", "N1": "j"}),
        # What is left over finds company further out.
        (["G0 h/p/s/i", "N0 h/p/s/i", "G1 h/p/s", "N1 h/p/s"], {"G0": "i", "N0": "i", "G1": "s", "N1": "s"}),
        # A GPU that would be left alone shares with those that have a NIC.
        (["G0 h/p/s/i", "N0 h/p/s/i", "G1 h/p/s/j"], {"G0": "s", "N0": "s", "G1": "s"}),
        # A NIC that is left alone, such as one for storage, does not.
        (["G0 h/p/s/i", "N0 h/p/s/i", "N1 h/p/s/j"], {"G0": "i", "N0": "i", "N1": "p"}),
        # The host bridge is no switch.
        (["G0 h/p", "N0 h/q"], {"G0": "p", "N0": "q"}),
        (["G0 h", "N0 h", "G1", "N1"], {}),
    ],
)
def test_devices_have_the_switch_that_joins_a_gpu_with_a_nic(spots: list[str], expected: dict[str, str]) -> None:
    assert found(*spots) == expected


PATHS = st.lists(st.sampled_from("abc"), max_size=4).map(
    lambda steps: tuple("/".join(steps[: end + 1]) for end in range(len(steps)))
)


@given(st.lists(st.tuples(st.booleans(), PATHS), max_size=12))
def test_devices_of_one_switch_are_joined_without_the_host_bridge_and_a_gpu_in_reach_of_a_nic_has_one(
    places: list[tuple[bool, tuple[str, ...]]],
) -> None:
    made = [Place(str(number), "", gpu, path) for number, (gpu, path) in enumerate(places)]
    common = switches(Spot(place.name, place.gpu, place.path) for place in made)
    near = (Proximity.PIX, Proximity.PXB)
    for one in made:
        for two in made:
            if one.name in common and common[one.name] == common.get(two.name):
                assert common[one.name] in one.path[1:]
                assert common[one.name] in two.path[1:]
        others = [two for two in made if not two.gpu and proximity(one, two) in near and len(two.path) > 1]
        if one.gpu and len(one.path) > 1 and others:
            assert any(common[two.name] == common[one.name] for two in others)


NODES_WITH_PAIRS = ["a100-sxm-8", "h100-sxm-8", "mi300x-8"]


def shared(name: str, *, corrected: bool = False) -> dict[str, list[str]]:
    """Every switch of GPUs, and the NICs that have it, too."""
    offered = [
        (item.device, attribute.value)
        for item in view(name, corrected=corrected).devices
        for attribute in item.placement
        if attribute.name == "switch"
    ]
    gpus = {str(switch) for device, switch in offered if device.kind == "gpu"}
    return {gpu: [device.name for device, each in offered if each == gpu and device.kind != "gpu"] for gpu in gpus}


@pytest.mark.parametrize("name", NODES_WITH_PAIRS)
def test_every_gpu_of_a_machine_built_for_it_has_a_switch_with_a_nic_of_its_own(name: str) -> None:
    assert sorted(len(nics) for nics in shared(name).values()) == [1] * 8


def test_gpus_that_share_a_nic_share_its_switch() -> None:
    assert {len(nics) for nics in shared("dgx1-v100-8").values()} == {1}
    assert {len(nics) for nics in shared("dgx2-v100-16").values()} == {1}
    assert len(shared("dgx1-v100-8")) == 4
    assert len(shared("dgx2-v100-16")) == 8


def test_a_virtual_machine_has_switches_only_by_a_topology_file() -> None:
    assert shared("vm-flat-8") == {}
    assert {len(nics) for nics in shared("vm-flat-8", corrected=True).values()} == {2}


def test_virtual_functions_and_parts_of_gpus_have_the_switch_of_the_whole() -> None:
    for name in ("sriov-2", "a100-mig-4", "mi300x-cpx-8"):
        addresses = {device.name: device.pci_address for device in snapshot(name).devices}
        by_whole: dict[str | None, set[object]] = {}
        for item in view(name).devices:
            device = item.device
            whole = addresses[device.parent] if device.parent else device.text("pfPciAddress") or device.pci_address
            switch = [attribute.value for attribute in item.placement if attribute.name == "switch"]
            by_whole.setdefault(whole, set()).add(tuple(switch))
        assert all(len(switches_) == 1 for switches_ in by_whole.values()), name
