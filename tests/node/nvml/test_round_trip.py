"""Whatever facts there may be, the stub serves them and the source reads them back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.inventory.facts import Ancestor, Fabric, GpuFacts, MigFacts, NvLink, NvmlFacts, SramErrors
from node.inventory.nvidia.nvml import NvmlSource
from tests.node.nvml import stub
from tests.node.nvml.conftest import read

pytestmark = stub.needs_gcc

TEXT = st.text(st.characters(blacklist_characters="\n\0", blacklist_categories=["Cs"]), min_size=1, max_size=7)
NUMBER = st.integers(0, 2**31 - 1)
UUID = st.uuids().map(str)


T = TypeVar("T")


def maybe(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | strategy


@st.composite
def nvlinks(draw: st.DrawFn) -> tuple[NvLink, ...]:
    links = []
    for index in sorted(draw(st.sets(st.integers(1, 35), max_size=4)) | {0}):
        end = draw(st.none() | st.tuples(st.sampled_from([None, "gpu", "switch", "ibmnpu"]), TEXT))
        links.append(NvLink(index, active=False) if end is None else NvLink(index, True, *end))
    return tuple(links)


@st.composite
def mig_devices(draw: st.DrawFn, maximum: int) -> tuple[MigFacts, ...]:
    numbered = {
        field.name: NUMBER
        for field in fields(MigFacts)
        if field.name not in ("index", "uuid", "name", "errors", "gpu_instance")
    }
    indices = sorted(draw(st.sets(st.integers(0, maximum - 1)))) if maximum else []
    # Each device in a GPU instance of its own, since the stub takes an instance's facts from its first device.
    return tuple(
        draw(st.builds(MigFacts, st.just(index), maybe(UUID), maybe(TEXT), st.just(index + 1), **numbered))
        for index in indices
    )


@st.composite
def gpu_facts(draw: st.DrawFn, index: int) -> GpuFacts:
    mig_mode = draw(st.none() | st.integers(0, 1))
    maximum = None if mig_mode is None else draw(st.integers(0, 7))
    rows = draw(st.none() | st.tuples(st.booleans(), st.booleans()))
    return GpuFacts(
        index=index,
        bus_id=f"00000000:{index:02X}:00.0",
        uuid=f"GPU-{draw(UUID)}",
        compute_capability=draw(st.none() | st.just("12.0")),
        memory_bytes=draw(st.none() | st.integers(0, 2**48)),
        addressing_mode=draw(st.sampled_from([None, "None", "HMM", "ATS", "9"])),
        remapped_rows_pending=None if rows is None else rows[0],
        remapped_rows_failed=None if rows is None else rows[1],
        mig_mode=mig_mode,
        mig_pending=mig_mode,
        mig_max_devices=maximum,
        mig_devices=draw(mig_devices(maximum or 0)) if mig_mode else (),
        nvlinks=draw(st.just(()) | nvlinks()),
        fabric=draw(st.none() | st.builds(Fabric, UUID, NUMBER, NUMBER, NUMBER, NUMBER, st.integers(0, 255))),
        sram=draw(st.none() | st.builds(SramErrors, NUMBER, NUMBER, st.booleans())),
        name=draw(maybe(TEXT)),
        serial=draw(maybe(TEXT)),
        vbios_version=draw(maybe(TEXT)),
        board_part_number=draw(maybe(TEXT)),
        minor=draw(maybe(NUMBER)),
        brand=draw(maybe(NUMBER)),
        architecture=draw(maybe(NUMBER)),
        module_id=draw(maybe(NUMBER)),
        virtualization_mode=draw(maybe(NUMBER)),
        ecc_mode=draw(maybe(NUMBER)),
    )


@st.composite
def nvml_facts(draw: st.DrawFn) -> NvmlFacts:
    gpus = [draw(gpu_facts(index)) for index in range(draw(st.integers(0, 3)))]
    for first, second in combinations(range(len(gpus)), 2):
        level = draw(st.none() | st.sampled_from([0, 10, 20, 30, 40, 50]))
        for own, other in ((first, second), (second, first)):
            if level is not None:
                gpus[own] = replace(gpus[own], ancestors=(*gpus[own].ancestors, Ancestor(other, level)))
    return NvmlFacts(
        driver_version=draw(st.none() | TEXT), cuda_driver_version=draw(st.none() | NUMBER), gpus=tuple(gpus)
    )


def without_errors(facts: NvmlFacts) -> NvmlFacts:
    """Facts alone: what is absent is NOT_SUPPORTED at the stub, which the source notes."""
    gpus = (
        replace(gpu, errors=(), mig_devices=tuple(replace(mig, errors=()) for mig in gpu.mig_devices))
        for gpu in facts.gpus
    )
    return replace(facts, errors=(), gpus=tuple(gpus))


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        stub.build(Path(path))
        yield Path(path)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(facts=nvml_facts())
def test_described_facts_are_read_back(directory: Path, facts: NvmlFacts) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(stub.VARIABLE, str(directory / "node.txt"))
        stub.write(directory / "node.txt", stub.describe(facts))
        source = NvmlSource(library=directory / stub.SONAME, proc=directory)
        try:
            assert without_errors(read(source)) == facts
            assert without_errors(read(source)) == facts
        finally:
            source.close()
