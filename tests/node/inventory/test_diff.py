from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from node.health.state import Health, HealthState
from node.inventory.devices import devices_of, statuses_of
from node.inventory.diff import Diff, diff
from node.inventory.facts import CdiFacts, NodeFacts, NvmlFacts
from node.inventory.identity import Identities
from node.inventory.model import (
    Capacity,
    Device,
    DeviceKind,
    Host,
    PeerLink,
    Snapshot,
    SourceState,
    SourceStatus,
    sorted_attributes,
)
from tests.making.nic_facts import interface, nic, nics
from tests.making.nvidia_facts import a100, gpu, mig, node


def snapshot(facts: NodeFacts) -> Snapshot:
    return Snapshot(1, devices_of(facts, Identities()), statuses_of(facts))


def test_added_and_removed_devices_are_named() -> None:
    found = diff(snapshot(node(gpu(0), gpu(1))), snapshot(node(gpu(1), a100(2, mig(0, 0)), pci=())))
    assert [device.name for device in found.added] == ["gpu-0000-3b-00-0", "mig-0000-3b-00-0-0-1"]
    assert [device.name for device in found.removed] == ["gpu-0000-1b-00-0"]
    assert "gpu-0000-1b-00-0 removed: NVIDIA H100 80GB HBM3, GPU-00000000-1111-2222-3333-444444444444, healthy" in (
        found.lines()
    )
    assert any(
        line.startswith("mig-0000-3b-00-0-0-1 added: NVIDIA A100-SXM4-40GB, 1g.5gb, MIG-") for line in found.lines()
    )


def test_changed_device_names_its_fields() -> None:
    found = diff(snapshot(node(gpu(0))), snapshot(node(gpu(0, remapped_rows_pending=True, vbios_version="2"))))
    (change,) = found.changed
    assert change.fields == ("health", "attributes")
    (line,) = found.lines()
    assert line == (
        "gpu-0000-1b-00-0 changed: health healthy -> degraded "
        "(a memory row waits to be remapped at the next reset of the GPU); vbiosVersion none -> 2"
    )


def test_every_field_has_its_words() -> None:
    old = snapshot(node(gpu(0)))
    (device,) = old.devices
    new = replace(
        device, uuid="GPU-2", numa_node=None, capacity=(Capacity("memory", 1),), nodes=(*device.nodes[1:],), index="5"
    )
    (line,) = diff(old, replace(old, devices=(new,))).lines()
    assert "uuid GPU-00000000-1111-2222-3333-444444444444 -> GPU-2" in line
    assert "index 0 -> 5" in line
    assert "numa_node 0 -> None" in line
    assert "capacity memory 85520809984 -> 1" in line
    assert "device nodes -/dev/nvidia0" in line


def test_link_that_goes_down_is_told_in_short() -> None:
    one = nic()
    up = snapshot(nics(one, interfaces=(interface(one, "eth0"),)))
    down = snapshot(nics(one, interfaces=(interface(one, "eth0", carrier=False, operstate="down"),)))
    assert diff(up, down).lines() == ("nic-0000-86-00-0 changed: linkUp true -> false, operState up -> down",)


def test_added_nic_is_described_by_its_interface() -> None:
    one = nic()
    found = diff(Snapshot(), snapshot(nics(one, interfaces=(interface(one, "eth0"),))))
    assert found.lines()[0] == "nic-0000-86-00-0 added: nic eth0, healthy"


def test_place_links_and_use_have_their_words() -> None:
    old = snapshot(node(gpu(0)))
    (device,) = old.devices
    new = replace(
        device, location="pci0000:00", links=(PeerLink(None, 18), PeerLink("0000:2b:00.0", 2)), host_use="is in br0"
    )
    there, back = (
        diff(*pair).lines()[0] for pair in ((old, replace(old, devices=(new,))), (replace(old, devices=(new,)), old))
    )
    assert f"location {device.location} -> pci0000:00" in there
    assert "links none -> 18 to switches, 2 to 0000:2b:00.0" in there
    assert there.endswith("the node itself uses it: is in br0")
    assert back.endswith("the node itself no longer uses it")


def test_sources_and_host_are_told() -> None:
    old = snapshot(NodeFacts(nvml=NvmlFacts(), cdi=CdiFacts()))
    facts = NodeFacts(nvml=NvmlFacts(status="UNKNOWN"))
    new = replace(snapshot(facts), host=Host(cdi_devices=frozenset({"nvidia.com/gpu=0"})))
    assert diff(old, new).lines() == (
        "source nvml is failed: the driver does not answer (UNKNOWN)",
        "source cdi is gone",
        "driver files or CDI specs of the node changed",
    )


def test_type_of_an_attribute_counts() -> None:
    old = Device("gpu-a", DeviceKind.GPU, "nvidia", attributes=sorted_attributes([("a", "1")]))
    new = replace(old, attributes=sorted_attributes([("a", 1)]))
    assert diff(Snapshot(devices=(old,)), Snapshot(devices=(new,))).lines() == ("gpu-a changed: types of attributes",)


devices = st.builds(
    Device,
    name=st.sampled_from(["gpu-a", "gpu-b", "gpu-c", "mig-d"]),
    kind=st.sampled_from(DeviceKind),
    vendor=st.just("nvidia"),
    uuid=st.sampled_from([None, "1", "2"]),
    health=st.builds(Health, state=st.sampled_from(HealthState), since=st.sampled_from([0.0, 1.0])),
)
statuses = st.builds(SourceStatus, name=st.sampled_from(["nvml", "sysfs"]), state=st.sampled_from(SourceState))
snapshots = st.builds(
    Snapshot,
    devices=st.lists(devices, unique_by=lambda device: device.name).map(
        lambda found: tuple(sorted(found, key=lambda device: device.name))
    ),
    sources=st.lists(statuses, unique_by=lambda status: status.name).map(
        lambda found: tuple(sorted(found, key=lambda status: status.name))
    ),
    host=st.builds(Host, cdi_devices=st.sampled_from([frozenset(), frozenset({"a"})])),
)


def applied(old: Snapshot, found: Diff) -> tuple[tuple[Device, ...], tuple[SourceStatus, ...]]:
    by_name = {device.name: device for device in old.devices}
    for device in found.removed:
        del by_name[device.name]
    by_name.update({device.name: device for device in found.added})
    by_name.update({change.new.name: change.new for change in found.changed})
    sources = {status.name: status for status in old.sources}
    for status in found.removed_sources:
        del sources[status.name]
    sources.update({status.name: status for status in found.sources})
    return tuple(by_name[name] for name in sorted(by_name)), tuple(sources[name] for name in sorted(sources))


@given(snapshots, snapshots)
def test_difference_applied_to_the_old_gives_the_new(old: Snapshot, new: Snapshot) -> None:
    found = diff(old, new)
    assert applied(old, found) == (new.devices, new.sources)
    assert found.host == (old.host != new.host)
    assert len(found.lines()) == (
        len(found.added)
        + len(found.removed)
        + len(found.changed)
        + len(found.sources)
        + len(found.removed_sources)
        + found.host
    )
    assert all(change.fields for change in found.changed)


@given(snapshots, snapshots)
def test_difference_backwards_is_the_inverse(old: Snapshot, new: Snapshot) -> None:
    there, back = diff(old, new), diff(new, old)
    assert (there.added, there.removed) == (back.removed, back.added)
    assert [(each.old, each.new, each.fields) for each in there.changed] == [
        (each.new, each.old, each.fields) for each in back.changed
    ]


@given(snapshots)
def test_nothing_differs_from_itself(one: Snapshot) -> None:
    assert diff(one, one).empty
    assert diff(one, one).lines() == ()
