"""The source against the machine that runs the tests, whatever it has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.inventory.facts import SysfsFacts
from node.inventory.pci import display_mode, pci_address
from node.inventory.sysfs.pci_functions import function_of
from node.inventory.sysfs.source import SysfsSource


@pytest.fixture(scope="module")
def facts() -> SysfsFacts:
    read = SysfsSource().read().sysfs
    assert read is not None
    return read


def test_nothing_is_an_error(facts: SysfsFacts) -> None:
    assert facts.errors == ()


def test_functions_are_where_the_kernel_says(facts: SysfsFacts) -> None:
    for function in facts.pci:
        assert pci_address(function.address) == function.address
        folder = Path("/sys/devices") / function.path
        assert folder == Path("/sys/bus/pci/devices", function.address).resolve()
        assert (folder / "class").read_text().strip() == function.class_code


def test_no_display_function_is_missed(facts: SysfsFacts) -> None:
    found = {function.address for function in facts.pci if display_mode(function)}
    devices = Path("/sys/bus/pci/devices")
    expected = {
        path.name
        for path in (devices.iterdir() if devices.is_dir() else ())
        if (path / "class").read_text()[:6] in ("0x0300", "0x0302")
    }
    assert found == expected


def test_device_files_have_the_numbers_of_the_real_ones(facts: SysfsFacts) -> None:
    for file in facts.device_files:
        status = Path(file.path).lstat()
        assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (file.major, file.minor)


def test_no_interface_of_hardware_is_missed(facts: SysfsFacts) -> None:
    names = Path("/sys/class/net")
    expected = {
        path.name
        for path in (names.iterdir() if names.is_dir() else ())
        if path.is_symlink() and not path.resolve().is_relative_to("/sys/devices/virtual")
    }
    assert {interface.name for interface in facts.interfaces} == expected


def test_interfaces_are_below_their_functions_and_say_what_the_kernel_says(facts: SysfsFacts) -> None:
    functions = {function.address: function for function in facts.pci}
    for interface in facts.interfaces:
        folder = Path("/sys/devices") / interface.path
        assert folder == Path("/sys/class/net", interface.name).resolve()
        assert (folder / "address").read_text().strip() == interface.address
        assert (folder / "ifindex").read_text().strip() == str(interface.ifindex)
        address = function_of(interface.path)
        if address is not None:
            assert interface.path.startswith(f"{functions[address].path}/")


def test_no_rdma_device_is_missed(facts: SysfsFacts) -> None:
    names = Path("/sys/class/infiniband")
    assert [device.name for device in facts.rdma] == (
        sorted(path.name for path in names.iterdir()) if names.is_dir() else []
    )


def test_reading_twice_finds_the_same() -> None:
    source = SysfsSource()

    assert source.read() == source.read()
    source.close()
    assert source.read() == SysfsSource().read()
