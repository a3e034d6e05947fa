"""The shipped nodes through the real NVML binding: what they say is what a driver could say."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.inventory.nvidia.nvml import NvmlSource
from node.inventory.recordings.source import read
from sandbox import nodes
from tests.node.nvml import stub

pytestmark = stub.needs_gcc


NVIDIA = ("a100-mig-4", "a100-sxm-8", "dgx1-v100-8", "dgx2-v100-16", "h100-sxm-8", "l4-2", "vm-flat-8")


def test_every_node_with_nvml_is_served() -> None:
    assert [name for name in nodes.names() if read(nodes.path(name)).facts.nvml is not None] == list(NVIDIA)


@pytest.mark.parametrize("name", NVIDIA)
def test_nvml_tells_the_recorded_facts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = read(nodes.path(name)).facts.nvml
    assert recorded is not None
    description = tmp_path / "node.txt"
    stub.write(description, stub.describe(recorded))
    monkeypatch.setenv(stub.VARIABLE, str(description))
    source = NvmlSource(tmp_path, stub.build(tmp_path / "usr/lib64"), proc=tmp_path / "proc", profiles=True)
    try:
        assert source.read().nvml == recorded
    finally:
        source.close()
