"""A GPU's MIG mode is changed only while nothing uses the GPU, and layouts are applied beside what others have made."""

from __future__ import annotations

import pytest

from node.inventory.nvidia.partition_maker import LAYOUT
from node.partitions import MigLayout, PartitionError
from tests.making.mig_nodes import Start, a100, foreign
from tests.node.nvml import stub
from tests.node.nvml.stub.injected import InjectedNvml

pytestmark = stub.needs_gcc


def test_a_gpu_that_computes_keeps_its_mode(start: Start, mig_hardware: InjectedNvml) -> None:
    made = start()
    mig_hardware.processes(0, (4711, 1))
    with pytest.raises(PartitionError, match="MIG mode cannot be turned on while process 4711 uses the GPU") as refused:
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    assert refused.value.pending
    facts = made.facts().gpus[0]
    assert (facts.mig_mode, facts.mig_pending) == (0, 0)
    assert made.maker.made() == ()


def test_a_gpu_that_must_be_reset_and_is_held_says_what_has_to_end(start: Start, mig_hardware: InjectedNvml) -> None:
    made = start(a100())
    mig_hardware.set({"gpu0.held": 1})
    with pytest.raises(PartitionError, match=r"MIG mode cannot be turned on now \(IN_USE\): programs hold") as refused:
        made.maker.make(made.gpu(), made.shape("1g.5gb", 5), "claim")
    assert refused.value.pending
    facts = made.facts().gpus[0]
    assert (facts.mig_mode, facts.mig_pending) == (0, 0)
    mig_hardware.set({"gpu0.held": None})
    made.maker.make(made.gpu(), made.shape("1g.5gb", 5), "claim")
    assert made.existing() == [("1g.5gb", 5, 1)]


def test_a_virtual_machine_keeps_the_mode_pending_until_it_starts_again(
    start: Start, mig_hardware: InjectedNvml
) -> None:
    made = start(a100())
    mig_hardware.set({"gpu0.vm": 1})
    with pytest.raises(PartitionError, match="restart the virtual machine") as refused:
        made.maker.make(made.gpu(), made.shape("1g.5gb", 5), "claim")
    assert refused.value.pending
    assert made.facts().gpus[0].mig_pending == 1
    mig_hardware.reset(0)
    made.maker.make(made.gpu(), made.shape("1g.5gb", 5), "claim")
    assert made.existing() == [("1g.5gb", 5, 1)]


def test_a_rule_that_does_not_allow_it_keeps_the_mode(start: Start) -> None:
    made = start(may_switch=False)
    with pytest.raises(PartitionError, match=r"which its rule does not allow; turn it on \(nvidia-smi -i 0 -mig 1\)"):
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    assert made.facts().gpus[0].mig_mode == 0


def test_a_gpu_leaves_mig_mode_when_it_has_no_instances(start: Start) -> None:
    made = start()
    made.maker.leave_partitioning(made.gpu())
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    foreign(made, "1g.10gb", 0, compute=False)
    with pytest.raises(PartitionError) as refused:
        made.maker.leave_partitioning(made.gpu())
    assert refused.value.pending
    assert refused.value.reason == (
        "MIG mode stays on while it has instances: 1g.10gb at memory slice 0 (not made by ostler), "
        "1g.10gb at memory slice 5 (made for claim)"
    )
    assert made.facts().gpus[0].mig_mode == 1


def test_mig_mode_goes_off(start: Start) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    made.maker.remove("claim")
    made.maker.leave_partitioning(made.gpu())
    assert made.facts().gpus[0].mig_mode == 0


def test_a_pending_mode_is_taken_back(start: Start, mig_hardware: InjectedNvml) -> None:
    made = start(a100())
    mig_hardware.set({"gpu0.vm": 1})
    with pytest.raises(PartitionError):
        made.maker.make(made.gpu(), made.shape("1g.5gb", 5), "claim")
    made.maker.leave_partitioning(made.gpu())
    assert made.facts().gpus[0].mig_pending == 0


def test_without_rights_it_says_what_to_do(start: Start, mig_hardware: InjectedNvml) -> None:
    made = start()
    mig_hardware.fail("nvmlDeviceSetMigMode", "NO_PERMISSION")
    with pytest.raises(PartitionError, match="nvmlDeviceSetMigMode says NO_PERMISSION; run ostler as root"):
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")


def test_a_layout_is_applied_and_changed(start: Start) -> None:
    made = start()
    gpu = made.gpu()
    made.maker.apply_layout(gpu, MigLayout(("3g.40gb", "1g.10gb")))
    assert made.existing() == [("1g.10gb", 4, 1), ("3g.40gb", 0, 4)]
    assert {entry.partition.owner for entry in made.journal.entries()} == {f"{LAYOUT}{gpu.uuid}"}
    assert made.maker.made() == ()
    assert made.maker.sweep(frozenset()) == ()
    assert {shape.profile for shape in made.maker.layout_of(gpu)} == {"3g.40gb", "1g.10gb"}
    made.maker.apply_layout(gpu, MigLayout(("1g.10gb", "1g.10gb")))
    assert made.existing() == [("1g.10gb", 0, 1), ("1g.10gb", 4, 1)]
    made.maker.apply_layout(gpu, MigLayout(()))
    assert made.existing() == []
    assert made.facts().gpus[0].mig_mode == 1
    made.maker.apply_layout(gpu, MigLayout((), enabled=False))
    assert made.facts().gpus[0].mig_mode == 0


def test_what_others_have_made_counts_and_stays(start: Start) -> None:
    made = start()
    foreign(made, "1g.10gb", 0)
    foreign(made, "1g.10gb", 1)
    made.maker.apply_layout(made.gpu(), MigLayout(("1g.10gb", "3g.40gb")))
    assert made.existing() == [("1g.10gb", 0, 1), ("1g.10gb", 1, 1), ("3g.40gb", 4, 4)]
    assert [shape.profile for shape in made.maker.layout_of(made.gpu())] == ["3g.40gb"]
    made.maker.apply_layout(made.gpu(), MigLayout(()))
    assert made.existing() == [("1g.10gb", 0, 1), ("1g.10gb", 1, 1)]


def test_a_layout_that_does_not_fit_changes_nothing(start: Start) -> None:
    made = start()
    made.maker.apply_layout(made.gpu(), MigLayout(("3g.40gb",)))
    with pytest.raises(
        PartitionError, match=r"its layout cannot be made: 2 x 4g\.40gb do not fit on it together"
    ) as no:
        made.maker.apply_layout(made.gpu(), MigLayout(("4g.40gb", "4g.40gb")))
    assert not no.value.pending
    assert made.existing() == [("3g.40gb", 0, 4)]
