"""Partitions of a recorded node's GPUs come and go as those of hardware do."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.inventory.devices import devices_of
from node.inventory.identity import Identities
from node.inventory.model import Device, DeviceKind, NodeRole, PartitionShape
from node.inventory.recordings.partitions import FILE, RecordedPartitions
from node.inventory.recordings.source import RecordedSource
from node.partitions import PartitionError
from sandbox.nodes import path


class Recorded:
    """A node ``h100-sxm-8`` whose made partitions are kept in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.maker = RecordedPartitions(folder)
        self._source = RecordedSource(path("h100-sxm-8"), self.maker)

    def devices(self) -> dict[str, Device]:
        return {device.name: device for device in devices_of(self._source.read(), Identities())}

    @property
    def gpu(self) -> Device:
        return self.devices()["gpu-0000-1b-00-0"]


def shape_of(gpu: Device, profile: str, start: int = 0) -> PartitionShape:
    return next(each for each in gpu.partitions if (each.profile, each.start) == (profile, start))


def test_a_partition_that_is_made_is_a_mig_device_with_its_shape_and_device_files(tmp_path: Path) -> None:
    node = Recorded(tmp_path)
    shape = shape_of(node.gpu, "1g.10gb", 3)
    made = node.maker.make(node.gpu, shape, "claim-1")
    (mig,) = [device for device in node.devices().values() if device.kind is DeviceKind.MIG]
    assert (mig.uuid, mig.parent, mig.text("profile")) == (made.uuid, node.gpu.name, "1g.10gb")
    assert (mig.attribute("placementStart"), mig.attribute("placementSize")) == (3, 1)
    assert set(mig.capacity) <= set(shape.capacity)
    assert all(each.present for each in mig.nodes_of(NodeRole.CAPABILITY, NodeRole.DEVICE))
    assert len(mig.nodes_of(NodeRole.CAPABILITY)) == 2
    assert node.gpu.attribute("migEnabled") is True


def test_it_is_made_once_for_an_owner_and_outlives_the_agent(tmp_path: Path) -> None:
    node = Recorded(tmp_path)
    shape = shape_of(node.gpu, "3g.40gb")
    made = node.maker.make(node.gpu, shape, "claim-1")
    assert node.maker.make(node.gpu, shape, "claim-1") == made
    later = Recorded(tmp_path)
    assert later.maker.made() == (made,)
    assert len(later.devices()) == len(node.devices())
    assert later.maker.remove("claim-1") == (made,)
    assert later.maker.remove("claim-1") == ()


def test_overlapping_placements_exclude_each_other_and_a_whole_gpu(tmp_path: Path) -> None:
    node = Recorded(tmp_path)
    node.maker.make(node.gpu, shape_of(node.gpu, "3g.40gb"), "claim-1")
    with pytest.raises(PartitionError, match=r"takes memory slices of 1g\.10gb at 2") as refused:
        node.maker.make(node.gpu, shape_of(node.gpu, "1g.10gb", 2), "claim-2")
    assert refused.value.pending
    with pytest.raises(PartitionError, match=r"it has the partitions mig-0000-1b-00-0-0-4-p9"):
        node.maker.leave_partitioning(node.gpu)
    assert [each.owner for each in node.maker.sweep(frozenset())] == ["claim-1"]
    node.maker.leave_partitioning(node.gpu)
    assert node.gpu.attribute("migEnabled") is False


def test_a_folder_that_cannot_be_written_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    node = Recorded(tmp_path / "state")
    with pytest.raises(PartitionError, match="check the state folder and its disk"):
        node.maker.make(node.gpu, node.gpu.partitions[0], "claim-1")
    assert node.maker.made() == ()


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    node = Recorded(tmp_path)
    node.maker.make(node.gpu, node.gpu.partitions[0], "claim-1")
    (tmp_path / FILE).write_text("garbage")
    assert Recorded(tmp_path).maker.made() == ()
    assert list(tmp_path.glob(f"{FILE}.damaged-*"))
