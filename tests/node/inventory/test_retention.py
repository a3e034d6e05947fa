from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.eligibility import offer
from node.health.state import Health, HealthState
from node.inventory.devices import devices_of
from node.inventory.facts import GpuFacts, NodeFacts, PciFunction, SysfsFacts
from node.inventory.identity import Identities
from node.inventory.model import Device, DeviceKind, Snapshot, is_gone
from node.inventory.retention import KEPT_SECONDS, retained
from node.ledger.offer_context import NOTHING_HELD
from node.rules import Door, Rule, Selector
from tests.making.nic_facts import interface, nic, nics, port, rdma, subfunction, vf
from tests.making.nvidia_facts import a100, function, gpu, mig, node

REMEMBERED = Identities((("0000:1b:00.0", "GPU-0"),))
BOTH = node(a100(0, mig(0, 0), mig(1, 1)), gpu(1))
WHOLE = devices_of(BOTH, Identities())
LOST = devices_of(node(GpuFacts(index=0, error="GPU_IS_LOST"), gpu(1)), REMEMBERED)
SYSFS = BOTH.sysfs


def kept(facts: NodeFacts, previous: Iterable[Device], now: float = 1000.0) -> dict[str, Device]:
    """What is shown after a scan that saw these facts, stamped as the loop does."""
    before = {device.name: device for device in previous}
    shown = retained(devices_of(facts, Identities()), before.values(), facts.sysfs, now)
    stamped = []
    for device in shown:
        known = before.get(device.name)
        stamped.append(replace(device, health=device.health.carried(known.health if known else None, now)))
    return {device.name: device for device in stamped}


def reason(device: Device) -> str:
    assert is_gone(device)
    assert device.health.state is HealthState.UNHEALTHY
    return device.health.reason


def test_lost_gpu_keeps_what_was_known_of_it_and_its_mig_devices() -> None:
    found = {device.name: device for device in retained(LOST, WHOLE, SYSFS, 0)}
    assert sorted(found) == [device.name for device in WHOLE]
    lost = found["gpu-0000-1b-00-0"]
    assert lost.text("productName") == "NVIDIA A100-SXM4-40GB"
    assert lost.attribute("migEnabled") is True
    part = found["mig-0000-1b-00-0-0-1"]
    assert part.uuid == WHOLE[2].uuid
    assert part.health.state is HealthState.UNHEALTHY
    assert part.health.reason.startswith("its GPU gpu-0000-1b-00-0: the GPU is lost")
    assert found["gpu-0000-2b-00-0"].health.state is HealthState.HEALTHY


def test_what_is_kept_stays_kept() -> None:
    once = retained(LOST, WHOLE, SYSFS, 0)
    assert retained(LOST, once, SYSFS, 0) == once


def test_gpu_that_comes_back_tells_of_itself() -> None:
    back = devices_of(node(a100(0, mig(0, 0), mig(1, 1)), gpu(1)), Identities())
    assert retained(back, retained(LOST, WHOLE, SYSFS, 0), SYSFS, 0) == back


def test_gpu_of_which_nothing_was_ever_known_stays_so() -> None:
    assert retained(LOST, LOST, SYSFS, 0) == LOST
    assert retained(LOST, (), SYSFS, 0) == LOST


def test_uuid_of_now_wins() -> None:
    other = tuple(replace(device, uuid="GPU-new") for device in LOST[:1])
    assert retained(other, WHOLE, SYSFS, 0)[0].uuid == "GPU-new"


def test_mig_devices_that_were_destroyed_are_marked_for_an_hour() -> None:
    fewer = node(a100(0, mig(0, 0)), gpu(1))
    found = kept(fewer, WHOLE)
    assert sorted(found) == [device.name for device in WHOLE]
    marked = found["mig-0000-1b-00-0-1-1"]
    assert reason(marked) == "gone from its GPU; it was destroyed or created again"
    assert (marked.uuid, marked.text("profile")) == ("MIG-00000001-aaaa-bbbb-cccc-dddddddddddd", "1g.5gb")
    later = kept(fewer, found.values(), 1000 + KEPT_SECONDS - 1)
    assert later == found
    assert "mig-0000-1b-00-0-1-1" not in kept(fewer, later.values(), 1000 + KEPT_SECONDS)


def test_mig_device_made_anew_in_its_place_is_another_one() -> None:
    anew = node(a100(0, mig(0, 0, uuid="MIG-ffffffff-0000-0000-0000-000000000000"), mig(1, 1)), gpu(1))
    found = kept(anew, WHOLE)
    assert found["mig-0000-1b-00-0-0-1"].uuid == "MIG-ffffffff-0000-0000-0000-000000000000"
    former = found["mig-0000-1b-00-0-0-1-was-00000000"]
    assert former.uuid == "MIG-00000000-aaaa-bbbb-cccc-dddddddddddd"
    reason(former)
    assert kept(anew, found.values()) == found


def test_gpu_that_left_the_machine_is_marked() -> None:
    gone = node(gpu(1), pci=(function(1),))
    found = kept(gone, WHOLE)
    assert reason(found["gpu-0000-1b-00-0"]) == "gone from the PCI bus; it was removed or does not answer"
    assert reason(found["mig-0000-1b-00-0-0-1"]) == "gone from the PCI bus; it was removed or does not answer"
    assert found["gpu-0000-1b-00-0"].health.since == 1000.0
    assert found["gpu-0000-2b-00-0"].health.usable


def test_gpu_that_came_back_within_the_hour_is_itself_again() -> None:
    found = kept(node(gpu(1), pci=(function(1),)), WHOLE)
    back = kept(BOTH, found.values(), 2000.0)["gpu-0000-1b-00-0"]
    assert back == replace(WHOLE[0], health=Health(since=2000.0))


@pytest.mark.parametrize(
    ("driver", "words"),
    [("vfio-pci", "the driver vfio-pci has it now"), (None, "no driver is bound to it")],
)
def test_gpu_whose_driver_was_changed_is_marked(driver: str | None, words: str) -> None:
    taken = node(gpu(1), pci=(function(0, driver=driver), function(1)))
    assert reason(kept(taken, WHOLE)["gpu-0000-1b-00-0"]) == (f"gone from the list of the driver that had it; {words}")


def test_gpu_is_not_said_to_be_gone_from_a_bus_that_nobody_reads() -> None:
    without = replace(node(gpu(1)), sysfs=None)
    assert reason(kept(without, WHOLE)["gpu-0000-1b-00-0"]) == "gone from the driver's list of devices"


def test_device_whose_function_could_not_be_read_is_unknown() -> None:
    pci = devices_of(nics(nic(0), nic(1)), Identities())
    errors = ("/sys/bus/pci/devices/0000:86:00.1/class: Input/output error",)
    found = kept(nics(nic(0), errors=errors), pci)["nic-0000-86-00-1"]
    assert is_gone(found)
    assert (found.health.state, found.health.reason) == (HealthState.UNKNOWN, f"gone from sight: {errors[0]}")
    nothing = kept(nics(errors=("/sys/bus/pci/devices: Permission denied",)), pci)
    assert {device.health.state for device in nothing.values()} == {HealthState.UNKNOWN}


def test_virtual_functions_that_were_destroyed_are_marked() -> None:
    before = devices_of(nics(nic(), vf(0), vf(1)), Identities())
    found = kept(nics(nic()), before)
    assert sorted(name for name, device in found.items() if is_gone(device)) == ["nic-0000-86-00-2", "nic-0000-86-00-3"]
    assert found["nic-0000-86-00-3"].attribute("vfIndex") == 1


VF = "nic-0000-86-00-2"
TAKEN_DOWN = "gone from its physical function; the virtual function was taken down"
LEFT = "gone from the PCI bus; it was removed or does not answer"


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        (nic(sriov_totalvfs=8, sriov_numvfs=0), TAKEN_DOWN),
        (nic(sriov_totalvfs=8, sriov_numvfs=None), TAKEN_DOWN),
        (nic(sriov_totalvfs=8, sriov_numvfs=1), LEFT),
        (nic(sriov_totalvfs=8, sriov_numvfs=4), LEFT),
        (nic(1), LEFT),
    ],
    ids=["none left", "nobody knows", "still counted", "more counted", "with its physical function"],
)
def test_a_virtual_function_left_the_bus_only_where_it_is_still_counted(whole: PciFunction, words: str) -> None:
    before = devices_of(nics(nic(sriov_totalvfs=8, sriov_numvfs=2), vf(0), vf(1)), Identities())
    gone = kept(nics(whole), before)[VF]
    assert reason(gone) == words
    assert gone.health.cause == ("lost" if words == LEFT else "")


def test_only_those_virtual_functions_that_are_counted_no_more_were_taken_down() -> None:
    before = devices_of(nics(nic(sriov_totalvfs=8, sriov_numvfs=2), vf(0), vf(1)), Identities())
    found = kept(nics(nic(sriov_totalvfs=8, sriov_numvfs=1)), before)
    assert (reason(found[VF]), reason(found["nic-0000-86-00-3"])) == (LEFT, TAKEN_DOWN)


def test_a_virtual_function_that_is_missing_before_it_is_counted_no_more_was_taken_down_all_the_same() -> None:
    before = devices_of(nics(nic(sriov_totalvfs=8, sriov_numvfs=2), vf(0), vf(1)), Identities())
    meanwhile = kept(nics(nic(sriov_totalvfs=8, sriov_numvfs=2)), before)
    assert meanwhile[VF].health.cause == "lost"
    after = kept(nics(nic(sriov_totalvfs=8, sriov_numvfs=0)), meanwhile.values(), 1001.0)
    assert (reason(after[VF]), after[VF].health.cause) == (TAKEN_DOWN, "")
    assert kept(nics(nic(sriov_totalvfs=8, sriov_numvfs=4)), after.values(), 1002.0)[VF] == after[VF]


def test_a_virtual_function_whose_physical_one_cannot_be_read_is_unknown() -> None:
    before = devices_of(nics(nic(), vf(0)), Identities())
    errors = ("/sys/bus/pci/devices/0000:86:00.0/class: Input/output error",)
    found = kept(nics(nic(1), errors=errors), before)[VF]
    assert (found.health.state, found.health.cause) == (HealthState.UNKNOWN, "")


def test_subfunction_and_port_that_went_are_marked() -> None:
    one = nic()
    interfaces = (interface(one, "eth0"), interface(one, "eth1", dev_port=1))
    before = devices_of(nics(one, subfunctions=(subfunction(one),), interfaces=interfaces), Identities())
    found = kept(nics(one, interfaces=interfaces[:1]), before)
    assert reason(found["nic-0000-86-00-0-sf88"]) == "gone from its function; the subfunction was removed"
    assert reason(found["nic-0000-86-00-0-p1"]) == (
        "gone from its function, which no longer has such a port or RDMA device"
    )


def test_what_shows_up_under_another_name_with_the_same_id_is_not_kept() -> None:
    nameless = devices_of(node(gpu(0, bus_id=None), on_bus=0), Identities())
    assert [device.name for device in nameless] == ["gpu-index-0"]
    assert list(kept(node(gpu(0)), nameless)) == ["gpu-0000-1b-00-0"]


def test_unbound_nic_keeps_what_was_known_of_it_but_its_link() -> None:
    one = nic()
    before = devices_of(
        nics(one, interfaces=(interface(one, "eth0"),), rdma=(rdma(one, "mlx5_0", port()),)), Identities()
    )
    unbound = nics(nic(driver=None))
    found = kept(unbound, before)["nic-0000-86-00-0"]
    assert (found.text("driver"), found.text("ifName")) == ("mlx5_core", "eth0")
    assert (found.health.reason, found.health.since) == ("no driver is bound", 1000.0)
    assert {"linkUp", "operState", "rdmaPortState"}.isdisjoint(each.name for each in found.attributes)
    assert kept(unbound, [found])["nic-0000-86-00-0"] == found
    assert not is_gone(found)


def test_nic_bound_to_another_driver_tells_of_itself() -> None:
    before = devices_of(nics(nic()), Identities())
    assert kept(nics(nic(driver="vfio-pci")), before)["nic-0000-86-00-0"].text("driver") == "vfio-pci"


def test_gone_gpu_is_not_learned_again() -> None:
    found = kept(node(gpu(1, uuid="GPU-9"), pci=(function(1),)), WHOLE)
    assert Identities().updated(found.values(), NodeFacts()).addresses == ("0000:2b:00.0",)


def test_what_is_gone_does_not_count_as_a_mix_of_profiles() -> None:
    bigger = mig(5, 0, 4, uuid="MIG-eeeeeeee-0000-0000-0000-000000000000", name="NVIDIA A100 MIG 3g.20gb")
    repartitioned = kept(node(a100(0, bigger), on_bus=1), devices_of(node(a100(0, mig(0, 0))), Identities()))
    rule = Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.MIG,)), uniform=True)
    found = offer(Snapshot(devices=tuple(repartitioned.values())), [rule], NOTHING_HELD, Door.PLUGIN).resource(
        "nvidia.com/gpu"
    )
    assert found is not None
    assert [(device.device.text("profile"), device.healthy) for device in found.devices] == [
        ("1g.5gb", False),
        ("3g.20gb", True),
    ]


def test_what_is_gone_is_bounded_in_number() -> None:
    many = [
        Device(f"nic-{number:05}", WHOLE[0].kind, "nvidia", uuid=f"GPU-{number}", health=Health(since=0))
        for number in range(1100)
    ]
    shown = retained((), many, SysfsFacts(), 10)
    assert len(shown) == 1024
    assert all(is_gone(device) for device in shown)


present = st.lists(st.sampled_from(range(6)), unique=True)


@given(st.lists(present, min_size=1, max_size=6))
def test_every_device_ever_seen_is_shown_for_an_hour_and_is_whole_again_when_back(steps: list[list[int]]) -> None:
    shown: dict[str, Device] = {}
    ever: set[str] = set()
    for step, numbers in enumerate(steps):
        facts = nics(*(nic(number) for number in numbers))
        there = {device.name for device in devices_of(facts, Identities())}
        ever |= there
        shown = kept(facts, shown.values(), float(step))
        assert set(shown) == ever
        assert {name for name, device in shown.items() if not is_gone(device)} == there
    assert kept(nics(), shown.values(), KEPT_SECONDS + 100).keys() <= {
        name for name, device in shown.items() if not is_gone(device)
    }
