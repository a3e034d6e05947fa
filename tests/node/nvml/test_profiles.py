"""MIG profiles are read once per session, where they are wanted, and degrade to none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from node.inventory.facts import CallError, MigProfile, MigTable, NvmlFacts
from node.inventory.recordings.document import load
from ostler.cli.main import main
from tests.making import mig_tables
from tests.node.nvml import nodes, stub
from tests.node.nvml.conftest import ServedNode, read

pytestmark = stub.needs_gcc

INFO = "nvmlDeviceGetGpuInstanceProfileInfo"
PLACEMENTS = "nvmlDeviceGetGpuInstancePossiblePlacements"


def partitionable(profiles: tuple[MigProfile, ...] = mig_tables.H100_80GB) -> NvmlFacts:
    facts = nodes.hgx()
    return replace(facts, mig_tables=(MigTable(tuple(gpu.index for gpu in facts.gpus), profiles),))


@pytest.fixture
def served(node: ServedNode) -> ServedNode:
    node.install()
    node.serve(partitionable())
    return node


@pytest.mark.parametrize(
    "profiles",
    [
        mig_tables.A100_40GB,
        mig_tables.A100_80GB,
        mig_tables.A30,
        mig_tables.H100_80GB,
        mig_tables.H200_141GB,
        mig_tables.B200_180GB,
    ],
)
def test_equal_gpus_share_one_table(node: ServedNode, profiles: tuple[MigProfile, ...]) -> None:
    node.install()
    node.serve(partitionable(profiles))
    tables = read(node.source(profiles=True)).mig_tables
    assert tables == (MigTable(tuple(range(8)), profiles),)


def test_gpus_of_several_models_have_tables_of_their_own(served: ServedNode) -> None:
    tables = (MigTable((0, 2, 4, 6), mig_tables.H100_80GB), MigTable((1, 3), mig_tables.A30))
    served.serve(replace(nodes.hgx(), mig_tables=tables))
    assert read(served.source(profiles=True)).mig_tables == tables


def test_nothing_is_asked_where_nobody_wants_profiles(served: ServedNode) -> None:
    served.serve(partitionable(), f"error.{INFO} UNKNOWN\n")
    facts = read(served.source())
    assert facts.mig_tables == ()
    assert all(gpu.errors == () for gpu in facts.gpus)


def test_a_source_reads_them_from_when_it_is_told_on(served: ServedNode) -> None:
    source = served.source()
    assert read(source).mig_tables == ()
    source.read_profiles()
    assert read(source).mig_tables != ()


def test_they_are_read_once_per_session(served: ServedNode) -> None:
    source = served.source(profiles=True)
    before = read(source)
    served.serve(partitionable(mig_tables.A30))
    assert read(source) == before


def test_a_driver_without_names_has_the_same_profiles(node: ServedNode) -> None:
    node.install(without=[f"{INFO}V"])
    node.serve(partitionable())
    nameless = tuple(replace(profile, name=None) for profile in mig_tables.H100_80GB)
    assert read(node.source(profiles=True)).mig_tables == (MigTable(tuple(range(8)), nameless),)


@pytest.mark.parametrize("missing", [(INFO, f"{INFO}V"), (f"{PLACEMENTS}_v2",)])
def test_a_driver_that_cannot_tell_has_none(node: ServedNode, missing: tuple[str, ...]) -> None:
    node.install(without=missing)
    node.serve(partitionable())
    facts = read(node.source(profiles=True))
    assert facts.mig_tables == ()
    assert facts.gpus == nodes.hgx().gpus


@pytest.mark.parametrize("call", [INFO, PLACEMENTS])
def test_a_call_that_fails_costs_its_gpu_the_profiles_until_it_works(served: ServedNode, call: str) -> None:
    source = served.source(profiles=True)
    served.serve(partitionable(), f"gpu3.error.{call} NO_PERMISSION\n")
    facts = read(source)
    assert facts.mig_tables == (MigTable((0, 1, 2, 4, 5, 6, 7), mig_tables.H100_80GB),)
    assert facts.gpus[3].errors == (CallError(call, "NO_PERMISSION"),)
    assert facts.gpus[3].error is None
    served.serve(partitionable())
    assert read(source).mig_tables == partitionable().mig_tables


def test_a_lost_gpu_keeps_its_profiles(served: ServedNode) -> None:
    source = served.source(profiles=True)
    read(source)
    served.serve(partitionable(), stub.lost(2))
    facts = read(source)
    assert facts.gpus[2].error == "GPU_IS_LOST"
    assert facts.mig_tables == partitionable().mig_tables


def test_a_gpu_lost_while_it_is_asked_is_lost(served: ServedNode) -> None:
    served.serve(partitionable(), f"gpu1.error.{PLACEMENTS} GPU_IS_LOST\n")
    facts = read(served.source(profiles=True))
    assert facts.gpus[1].error == "GPU_IS_LOST"
    assert facts.gpus[2].error is None


def test_a_gpu_without_mig_is_not_asked(served: ServedNode) -> None:
    served.serve(replace(nodes.bridged(), mig_tables=(MigTable((0, 1), mig_tables.A30),)))
    assert read(served.source(profiles=True)).mig_tables == ()


def test_placements_of_several_sizes_are_kept_apart(served: ServedNode) -> None:
    first = mig_tables.A100_40GB[0]
    table = (first, replace(first, size=2, starts=(0, 4)))
    served.serve(partitionable(table))
    assert read(served.source(profiles=True)).mig_profiles(0) == table


def test_a_recording_carries_them_although_no_rule_wants_partitions(served: ServedNode, tmp_path: Path) -> None:
    out = tmp_path / "recorded.yaml"
    library = str(served.root / "usr/lib64" / stub.SONAME)
    assert main(["record", "--nvidia-library", library, "-o", str(out), "--name", "one"]) == 0
    recorded = load(out.read_text(), "recorded").facts.nvml
    assert recorded is not None
    assert recorded.mig_tables == partitionable().mig_tables
