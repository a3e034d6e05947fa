"""What can be made of a GPU stands at the GPU, with MIG mode on or off."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from node.inventory.facts import MigProfile, MigTable, NodeFacts
from node.inventory.model import Capacity, DeviceKind, PartitionShape
from node.inventory.nvidia.layouts import profile_name, shapes_of
from node.inventory.recordings.source import read
from sandbox import nodes
from tests.making import mig_tables
from tests.making.nvidia_facts import GIB, a100, devices, gpu, mig, node

VECTORS = Path(__file__).parents[2] / "vectors" / "partitions" / "all-legal-sets.json"
TABLE = MigTable((0,), mig_tables.A100_40GB)


def with_table(facts: NodeFacts, *tables: MigTable) -> NodeFacts:
    assert facts.nvml is not None
    return replace(facts, nvml=replace(facts.nvml, mig_tables=tables))


@pytest.mark.parametrize("whole", [a100(0), a100(0, mig(0, 4)), gpu(0, memory_bytes=40 * GIB, mig_mode=0)])
def test_shapes_stand_at_the_whole_gpu_whatever_its_mode(whole: object) -> None:
    found = devices(with_table(node(whole), TABLE))  # type: ignore[arg-type]
    shapes = found["gpu-0000-1b-00-0"].partitions
    assert len(shapes) == 25
    assert all(device.partitions == () for device in found.values() if device.kind is not DeviceKind.GPU)


def test_a_gpu_whose_profiles_were_not_read_has_no_shapes() -> None:
    assert devices(with_table(node(a100(0), a100(1)), TABLE))["gpu-0000-2b-00-0"].partitions == ()


def test_shapes_are_sorted_and_have_what_an_existing_instance_has() -> None:
    shapes = shapes_of(mig_tables.A100_40GB, 40 * GIB)
    assert [(shape.profile_id, shape.start) for shape in shapes] == sorted(
        (shape.profile_id, shape.start) for shape in shapes
    )
    existing = devices(with_table(node(a100(0, mig(0, 4))), TABLE))["mig-0000-1b-00-0-4-1"]
    shape = next(shape for shape in shapes if (shape.profile_id, shape.start) == (19, 4))
    assert shape == PartitionShape(existing.text("profile"), 19, 4, 1, existing.capacity)
    assert Capacity("memory", 4864 << 20) in shape.capacity


@pytest.mark.parametrize(
    ("table", "gigabytes"),
    [
        (mig_tables.A100_40GB, 40),
        (mig_tables.A100_80GB, 80),
        (mig_tables.A30, 24),
        (mig_tables.H100_80GB, 80),
        (mig_tables.H200_141GB, 141),
        (mig_tables.B200_180GB, 180),
    ],
)
def test_a_driver_that_tells_no_names_has_the_same_names(table: tuple[MigProfile, ...], gigabytes: int) -> None:
    for profile in table:
        named = profile_name(profile, gigabytes * GIB)
        assert profile_name(replace(profile, name=None), gigabytes * GIB) == named
        assert f"MIG {named}" == profile.name


def test_equal_tables_are_one_object_in_every_scan() -> None:
    facts = with_table(node(a100(0)), TABLE)
    first, second = (devices(facts)["gpu-0000-1b-00-0"].partitions for _ in range(2))
    assert first is second


@pytest.mark.parametrize("name", ["a100-mig-4", "a100-sxm-8", "h100-sxm-8", "vm-flat-8"])
def test_shipped_nodes_with_mig_have_shapes_at_every_gpu(name: str) -> None:
    found = devices(read(nodes.path(name)).facts)
    gpus = [device for device in found.values() if device.kind is DeviceKind.GPU]
    assert gpus
    assert all(len(device.partitions) == 25 for device in gpus)
    # What exists is one of what can be made.
    for device in found.values():
        if device.kind is DeviceKind.MIG:
            assert device.parent is not None
            assert any(
                (shape.profile, shape.profile_id, shape.start, shape.size, shape.capacity)
                == (
                    device.text("profile"),
                    device.attribute("gpuInstanceProfileID"),
                    device.attribute("placementStart"),
                    device.attribute("placementSize"),
                    device.capacity,
                )
                for shape in found[device.parent].partitions
            ), device.name


def test_an_a100_is_divided_into_what_the_recorded_prototype_divides_it_into() -> None:
    """Which of them fit together is then a matter of the counters: see ``tests/driver/devices/test_partitions.py``."""
    recorded = json.loads(VECTORS.read_text())["pools"][0]["spec"]["devices"][1:]
    theirs = {
        (each["attributes"][0]["stringValue"].replace("-me", "+me"), frozenset(each["requests"].items()))
        for each in recorded
    }
    ours = {(shape.profile, frozenset(requests(shape).items())) for shape in shapes_of(mig_tables.A100_40GB, 40 * GIB)}
    assert len(ours) == len(recorded) == 25
    assert ours == theirs


def requests(shape: PartitionShape) -> dict[str, str]:
    """What the prototype's device of this shape asks for; it leaves out what is 0."""
    named = {"copyEngines": "copy-engines", "jpegEngines": "jpeg-engines", "ofaEngines": "ofa-engines"}
    amounts = {
        named.get(each.name, each.name): f"{each.value >> 20}Mi" if each.name == "memory" else str(each.value)
        for each in shape.capacity
        if each.value
    }
    return amounts | {f"memory-slice-{number}": "1" for number in range(shape.start, shape.start + shape.size)}
