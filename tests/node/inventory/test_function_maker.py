"""Virtual functions are made by sysfs as the kernel wants it, and every refusal says what to do."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from node.files import FileError
from node.inventory.nics.function_maker import SysfsVfMaker, VfError, VfRecord, write_attribute
from tests.making.nic_facts import PF
from tests.making.sriov_kernel import SriovKernel, physical


@pytest.fixture
def kernel(tmp_path: Path) -> SriovKernel:
    return SriovKernel(tmp_path, physical())


def refusal(kernel: SriovKernel, count: int = 4, *, autoprobe: bool | None = None) -> VfError:
    with pytest.raises(VfError) as caught:
        SysfsVfMaker(kernel.sys, kernel).make(PF, count, autoprobe=autoprobe)
    return caught.value


def test_functions_are_made_by_one_write(kernel: SriovKernel) -> None:
    SysfsVfMaker(kernel.sys, kernel).make(PF, 4, autoprobe=True)
    assert kernel.written == [(PF, "sriov_numvfs", "4")]
    assert kernel.read(PF, "sriov_numvfs") == "4"


def test_drivers_are_kept_away_before_the_functions_exist(kernel: SriovKernel) -> None:
    assert SysfsVfMaker(kernel.sys, kernel).make(PF, 2, autoprobe=False) is False
    assert kernel.written == [(PF, "sriov_drivers_autoprobe", "0"), (PF, "sriov_numvfs", "2")]


@pytest.mark.parametrize("probe", ["0", "1", None])
def test_drivers_are_bound_as_the_kernel_says_unless_somebody_asks(tmp_path: Path, probe: str | None) -> None:
    kernel = SriovKernel(tmp_path, physical(), probe=probe)
    assert SysfsVfMaker(kernel.sys, kernel).make(PF, 4, autoprobe=None) is (probe != "0")
    assert kernel.written == [(PF, "sriov_numvfs", "4")]


def test_a_failure_leaves_the_probing_of_drivers_as_it_was(kernel: SriovKernel) -> None:
    kernel.refuse["sriov_numvfs"] = errno.ENOMEM
    refusal(kernel, autoprobe=False)
    assert kernel.read(PF, "sriov_drivers_autoprobe") == "1"
    assert kernel.read(PF, "sriov_numvfs") == "0"


def test_a_number_that_somebody_wrote_is_never_changed(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path, physical(made=2))
    error = refusal(kernel)
    assert (error.reason, error.again) == ("another program has made 2 in the meantime", True)
    assert kernel.written == []


@pytest.mark.parametrize(
    ("code", "text", "again"),
    [
        (errno.EBUSY, "the kernel says Device or resource busy: another program is making some at this moment", True),
        (errno.ENODEV, "it was removed from the machine", True),
        (errno.ENOMEM, "the kernel found no room for them (Cannot allocate memory); 'dmesg' says of what", False),
        (errno.ENOSPC, "boot with pci=assign-busses; or ask for fewer", False),
        (errno.ENOENT, "its driver makes no virtual functions through sysfs (No such file or directory)", False),
        (errno.ERANGE, "ask for at most the number in sriov_totalvfs", False),
        (errno.EOPNOTSUPP, "its driver refuses to make them in the mode that the NIC is in", False),
        (errno.EIO, "the kernel says Input/output error; 'dmesg' has the reason of its driver", False),
        (errno.EROFS, "sriov_numvfs (Read-only file system); in the chart set nics.virtualFunctions to true", False),
        (errno.EACCES, "sriov_numvfs (Permission denied); in the chart set nics.virtualFunctions to true", False),
    ],
)
def test_what_the_kernel_refuses_is_said_with_what_to_do(
    kernel: SriovKernel, code: int, text: str, again: bool
) -> None:
    kernel.refuse["sriov_numvfs"] = code
    error = refusal(kernel)
    assert text in error.reason
    assert error.again is again


def test_the_kernels_own_rules(kernel: SriovKernel) -> None:
    assert "the kernel allows fewer" in refusal(kernel, 9).reason
    (kernel.sys / "bus/pci/devices" / PF / "driver").unlink()
    assert "its driver makes no virtual functions" in refusal(kernel).reason


def test_a_driver_that_makes_fewer_is_reported(kernel: SriovKernel) -> None:
    kernel.room = 3
    assert refusal(kernel).reason == "the driver has made only 3 of 4; ask for at most 3, and see 'dmesg'"


def test_an_old_kernel_cannot_keep_drivers_away(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path, physical(), probe=None)
    assert "too old to leave them without a driver" in refusal(kernel, autoprobe=False).reason
    SysfsVfMaker(kernel.sys, kernel).make(PF, 4, autoprobe=True)
    assert kernel.written == [(PF, "sriov_numvfs", "4")]


def test_a_function_that_is_gone_is_looked_at_again(kernel: SriovKernel) -> None:
    with pytest.raises(VfError, match="cannot be read: No such file") as caught:
        SysfsVfMaker(kernel.sys, kernel).make("0000:99:00.0", 4, autoprobe=True)
    assert caught.value.again


def test_an_attribute_is_written_in_place_and_never_created(tmp_path: Path) -> None:
    attribute = tmp_path / "sriov_numvfs"
    with pytest.raises(FileNotFoundError):
        write_attribute(attribute, "4")
    attribute.write_text("0\n")
    before = attribute.stat().st_ino
    write_attribute(attribute, "4")
    assert (attribute.read_text(), attribute.stat().st_ino) == ("4\n", before)


def test_what_was_made_is_known_until_the_next_boot(tmp_path: Path) -> None:
    VfRecord(tmp_path, "first").note(PF, 4)
    assert VfRecord(tmp_path, "first").made == {PF: 4}
    assert VfRecord(tmp_path, "second").made == {}


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema":"virtual-functions/v9","sha256":"","data":{}}\n'])
def test_a_record_that_cannot_be_used_costs_nothing_else(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "virtual-functions.json").write_bytes(content)
    record = VfRecord(tmp_path, "first")
    assert record.made == {}
    record.note(PF, 4)
    assert VfRecord(tmp_path, "first").made == {PF: 4}


def test_a_disk_that_takes_no_more_is_told_and_remembered_in_memory(tmp_path: Path) -> None:
    record = VfRecord(tmp_path / "absent", "first")
    with pytest.raises(FileError):
        record.note(PF, 4)
    assert record.made == {PF: 4}
