"""What holds for all facts, however odd."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from node.inventory.devices import devices_of, statuses_of
from node.inventory.facts import CallError, GpuFacts, MigFacts, NodeFacts, NvmlFacts
from node.inventory.identity import Identities
from node.inventory.model import DeviceKind
from node.inventory.nvidia import devices as nvidia
from tests.making.nvidia_facts import a100, function, gpu, mig, node, sysfs, uuid

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

small = st.one_of(st.none(), st.integers(0, 8))
bus_ids = st.sampled_from([None, "", "odd", *(f"00000000:{index + 1:X}B:00.0" for index in range(4))])
errors = st.lists(
    st.builds(
        CallError,
        call=st.sampled_from(["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUUID", "nvmlDeviceGetNvLinkState"]),
        error=st.sampled_from(["NOT_SUPPORTED", "GPU_IS_LOST", "UNKNOWN"]),
    ),
    max_size=2,
).map(tuple)
migs = st.builds(
    MigFacts,
    index=st.integers(0, 7),
    uuid=st.one_of(st.none(), st.uuids().map(lambda value: f"MIG-{value}")),
    name=st.sampled_from([None, "", "NVIDIA A100 MIG 1g.5gb", "NVIDIA A100 MIG 1c.2g.10gb", "odd MIG"]),
    gpu_instance=small,
    compute_instance=small,
    placement_start=small,
    placement_size=small,
    gpu_slices=small,
    compute_slices=small,
    memory_mib=small,
    errors=errors,
)
gpus = st.builds(
    GpuFacts,
    index=st.integers(0, 7),
    error=st.sampled_from([None, None, None, "GPU_IS_LOST", "UNKNOWN"]),
    bus_id=bus_ids,
    uuid=st.sampled_from([None, *map(uuid, range(4))]),
    name=st.sampled_from([None, "NVIDIA H100 80GB HBM3"]),
    minor=small,
    memory_bytes=st.one_of(st.none(), st.integers(0, 1 << 40)),
    compute_capability=st.sampled_from([None, "", "9.0", "odd"]),
    brand=small,
    architecture=small,
    virtualization_mode=small,
    mig_mode=st.sampled_from([None, 0, 1]),
    mig_pending=st.sampled_from([None, 0, 1]),
    mig_devices=st.lists(migs, max_size=3).map(tuple),
    errors=errors,
)
nvmls = st.builds(
    NvmlFacts,
    status=st.sampled_from(["ok", "ok", "ok", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH"]),
    driver_version=st.sampled_from([None, "550.107.02", "odd"]),
    cuda_driver_version=st.sampled_from([None, 0, 12040]),
    gpus=st.lists(gpus, max_size=5).map(tuple),
    errors=errors,
)
functions = st.builds(
    lambda index, driver, numa: function(index, driver=driver, numa_node=numa),
    st.integers(0, 3),
    st.sampled_from(["nvidia", "vfio-pci", None]),
    st.sampled_from([None, -1, 0, 1]),
)
nodes = st.builds(
    NodeFacts,
    nvml=st.one_of(st.none(), nvmls),
    sysfs=st.one_of(
        st.none(),
        st.lists(functions, max_size=4, unique_by=lambda each: each.address).map(
            lambda pci: replace(sysfs(2), pci=tuple(pci))
        ),
    ),
)
memories = st.lists(st.integers(0, 3), unique=True).map(
    lambda slots: Identities(tuple(sorted((f"0000:{slot + 1:x}b:00.0", uuid(slot)) for slot in slots)))
)


def devices_are_sorted_uniquely_named_labels_with_their_parents(facts: NodeFacts, remembered: Identities) -> None:
    found = devices_of(facts, remembered)
    names = [device.name for device in found]
    assert names == sorted(set(names))
    assert all(LABEL.fullmatch(name) for name in names)
    for device in found:
        assert device.numa_node is None or device.numa_node >= 0
        assert [each.name for each in device.attributes] == sorted({each.name for each in device.attributes})
        assert device.health.usable or device.health.reason
        assert not device.health.usable or device.uuid is not None
        if device.kind is DeviceKind.MIG:
            parent = next(each for each in found if each.name == device.parent)
            assert parent.health.usable or device.health.state is parent.health.state


def every_gpu_of_the_driver_is_a_device(facts: NodeFacts, remembered: Identities) -> None:
    found = devices_of(facts, remembered)
    listed = facts.nvml.gpus if facts.nvml is not None else ()
    assert sum(1 for each in found if each.kind is DeviceKind.GPU and each.index is not None) == len(listed)
    assert sum(1 for each in found if each.kind is DeviceKind.MIG) == sum(len(each.mig_devices) for each in listed)


def same_facts_give_the_same_devices(facts: NodeFacts, remembered: Identities) -> None:
    assert devices_of(facts, remembered) == devices_of(facts, remembered)
    assert statuses_of(facts) == statuses_of(facts)


@settings(max_examples=100)
@given(nodes, nodes, memories)
def test_the_scan_before_does_not_show_in_the_devices(earlier: NodeFacts, facts: NodeFacts, known: Identities) -> None:
    nvidia._LAST.clear()
    fresh = devices_of(facts, known)
    nvidia._LAST.clear()
    devices_of(earlier, known)
    assert devices_of(facts, known) == fresh


def test_devices_of_gpus_without_changes_are_not_made_again() -> None:
    before = node(a100(0, mig(0, 4)), gpu(1))
    after = node(a100(0, mig(0, 4), mig(1, 5)), gpu(1))
    first = {device.name: device for device in devices_of(before, Identities())}
    second = {device.name: device for device in devices_of(after, Identities())}
    assert second["gpu-0000-2b-00-0"] is first["gpu-0000-2b-00-0"]
    assert len(second) == len(first) + 1


def what_is_learned_is_one_uuid_per_address_and_learned_once(facts: NodeFacts, remembered: Identities) -> None:
    found = devices_of(facts, remembered)
    learned = remembered.updated(found, facts)
    assert learned.updated(found, facts) == learned
    assert list(learned.addresses) == sorted(set(learned.addresses))


RULES = (
    devices_are_sorted_uniquely_named_labels_with_their_parents,
    every_gpu_of_the_driver_is_a_device,
    same_facts_give_the_same_devices,
    what_is_learned_is_one_uuid_per_address_and_learned_once,
)
"""What holds for all nodes: to make one takes longer than to judge it by every rule."""


@settings(max_examples=150)
@given(nodes, memories)
def test_every_rule_holds_for_all_facts(facts: NodeFacts, remembered: Identities) -> None:
    for rule in RULES:
        rule(facts, remembered)
