"""Compute modes are read and set through the NVML session of the moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from node.inventory.nvidia.compute_modes import (
    DEFAULT,
    EXCLUSIVE_PROCESS,
    ComputeModeError,
    NvmlComputeModes,
    mode_name,
)
from node.inventory.nvidia.nvml import NvmlSource
from tests.node.nvml import nodes, stub
from tests.node.nvml.stub.injected import InjectedNvml

pytestmark = stub.needs_gcc


class _Driver:
    """Hardware whose GPU 0 has compute modes, and the source that has it open."""

    def __init__(self, folder: Path) -> None:
        self.hardware = InjectedNvml(folder, nodes.hgx())
        self.hardware.set({"gpu0.compute_mode": DEFAULT})
        self.source = NvmlSource(Path("/"), self.hardware.library)
        self.modes = NvmlComputeModes(self.source.sessions)
        first, second = self.hardware.facts.gpus[:2]
        assert first.uuid is not None
        assert second.uuid is not None
        self.uuid, self.without = first.uuid, second.uuid


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Driver]:
    made = _Driver(tmp_path / "driver")
    monkeypatch.setenv(*next(iter(made.hardware.environment.items())))
    made.source.read()
    yield made
    made.source.close()


def test_a_mode_is_read_set_and_set_back(driver: _Driver) -> None:
    assert driver.modes.read(driver.uuid) == DEFAULT
    driver.modes.write(driver.uuid, EXCLUSIVE_PROCESS)
    assert driver.modes.read(driver.uuid) == EXCLUSIVE_PROCESS
    driver.modes.write(driver.uuid, DEFAULT)
    assert driver.modes.read(driver.uuid) == DEFAULT


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("NO_PERMISSION", "the agent lacks the right; run it as root with CAP_SYS_ADMIN"),
        ("NOT_SUPPORTED", "the GPU has no compute modes"),
        ("UNKNOWN", "nvmlDeviceSetComputeMode says UNKNOWN"),
    ],
)
def test_a_driver_that_refuses_is_named_with_the_reason(driver: _Driver, error: str, reason: str) -> None:
    driver.hardware.set({"error.nvmlDeviceSetComputeMode": error})
    with pytest.raises(ComputeModeError) as caught:
        driver.modes.write(driver.uuid, EXCLUSIVE_PROCESS)
    assert str(caught.value) == f"compute mode of {driver.uuid}: {reason}"


def test_a_gpu_without_modes_and_one_that_is_gone_say_so(driver: _Driver) -> None:
    with pytest.raises(ComputeModeError, match="has no compute modes"):
        driver.modes.read(driver.without)
    with pytest.raises(ComputeModeError, match="no longer knows the GPU"):
        driver.modes.read("GPU-0")


def test_without_a_session_nothing_is_read(driver: _Driver) -> None:
    driver.source.close()
    with pytest.raises(ComputeModeError, match="NVML is not open"):
        driver.modes.read(driver.uuid)


def test_modes_have_names() -> None:
    assert (mode_name(0), mode_name(3), mode_name(7)) == ("DEFAULT", "EXCLUSIVE_PROCESS", "7")
