"""A served node: description, library and source, closed at the end so that the binding's globals are clean."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from node.inventory.facts import NvmlFacts
from node.inventory.nvidia.nvml import NvmlSource
from tests.making import mig_nodes
from tests.making.mig_nodes import PartitionedNode, Start
from tests.node.nvml import nodes, stub
from tests.node.nvml.listening import Listening
from tests.node.nvml.stub.injected import InjectedNvml


class ServedNode:
    """A driver root with the stub library in it, and the hardware that it serves."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "driver"
        self.proc = directory / "proc"
        self.description = directory / "node.txt"
        self.sources: list[NvmlSource] = []

    def install(self, without: Sequence[str] = (), folder: str = "usr/lib64") -> Path:
        """Put the library into the driver root."""
        return stub.build(self.root / folder, without)

    def serve(self, facts: NvmlFacts, more: str = "") -> None:
        """Change the hardware to these facts, with more lines of description."""
        stub.write(self.description, stub.describe(facts) + more)

    def source(self, library: Path | None = None, *, profiles: bool = False) -> NvmlSource:
        """A new source on the driver root."""
        self.sources.append(NvmlSource(self.root, library, proc=self.proc, profiles=profiles))
        return self.sources[-1]

    def show_module(self, version: str, gpus: Sequence[str] = ()) -> None:
        """What the kernel module shows in /proc."""
        folder = self.proc / "driver" / "nvidia"
        (folder / "gpus").mkdir(parents=True, exist_ok=True)
        (folder / "version").write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}\n")
        for gpu in gpus:
            (folder / "gpus" / gpu).mkdir(exist_ok=True)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedNode]:
    served = ServedNode(tmp_path)
    monkeypatch.setenv(stub.VARIABLE, str(served.description))
    yield served
    for source in served.sources:
        source.close()


def read(source: NvmlSource) -> NvmlFacts:
    """The NVML section of one read."""
    facts = source.read().nvml
    assert facts is not None
    return facts


def well() -> NvmlFacts:
    """Eight GPUs without any trouble."""
    facts = nodes.hgx()
    return replace(facts, gpus=tuple(replace(gpu, remapped_rows_failed=False) for gpu in facts.gpus))


@pytest.fixture
def hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InjectedNvml:
    """Eight GPUs whose troubles are made by the test."""
    made = InjectedNvml(tmp_path / "driver", well())
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
async def listening(hardware: InjectedNvml, tmp_path: Path) -> AsyncIterator[Listening]:
    """Somebody who listens to them; afterwards no driver must have suffered."""
    async with Listening(hardware, tmp_path / "proc") as made:
        yield made
    assert hardware.violations == ()


@pytest.fixture
def mig_hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InjectedNvml:
    """Two GPUs that MIG can divide."""
    made = InjectedNvml(tmp_path / "driver", mig_nodes.node(2))
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NVML_STUB_PROC", str(tmp_path / "proc"))
    return made


@pytest.fixture
def start(mig_hardware: InjectedNvml, tmp_path: Path) -> Iterator[Start]:
    """Opens NVML and the partition maker on them; called again, the agent has started again."""
    opened: list[PartitionedNode] = []

    def begin(facts: NvmlFacts | None = None, **options: object) -> PartitionedNode:
        for each in opened:
            each.close()
        if facts is not None:
            mig_hardware.serve(facts)
        opened.append(PartitionedNode(mig_hardware.library, tmp_path / "state", **options))  # type: ignore[arg-type]
        return opened[-1]

    yield begin
    for each in opened:
        each.close()
