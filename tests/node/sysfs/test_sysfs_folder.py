"""What the kernel's own answers mean, asked of the real kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.inventory.sysfs.files import ANSWERED, OPTIONAL, SysfsFolder, Unreadable, printable, read_text

LOOPBACK = "/sys/class/net/lo"


@pytest.fixture
def errors() -> list[str]:
    return []


def test_an_attribute_that_the_driver_declines_to_answer_is_none_and_no_error(errors: list[str]) -> None:
    assert SysfsFolder(LOOPBACK, errors).text("speed", ANSWERED) is None
    assert errors == []


def test_the_same_answer_is_an_error_where_nobody_may_decline(errors: list[str]) -> None:
    assert SysfsFolder(LOOPBACK, errors).text("speed") is None
    assert errors == [f"{LOOPBACK}/speed: Invalid argument"]


def test_a_read_that_the_kernel_fails_is_named(errors: list[str]) -> None:
    assert SysfsFolder("/proc/self", errors).text("mem", ANSWERED | OPTIONAL) is None
    assert errors == ["/proc/self/mem: Input/output error"]


def test_numbers_and_links_of_the_real_kernel_are_read(errors: list[str]) -> None:
    folder = SysfsFolder(LOOPBACK, errors)

    assert folder.number("ifindex") == 1
    assert folder.link("subsystem") == "net"
    assert folder.tree_path("lo") == "virtual/net/lo"
    assert not folder.gone
    assert errors == []


def test_only_a_folder_that_is_not_there_is_gone(tmp_path: Path, errors: list[str]) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nothing")

    assert SysfsFolder(str(tmp_path / "nothing"), errors).gone
    assert SysfsFolder(str(tmp_path / "dangling"), errors).gone
    assert not SysfsFolder(str(tmp_path / "loop"), errors).gone


def test_an_absolute_link_and_one_out_of_another_mount_have_their_place(tmp_path: Path, errors: list[str]) -> None:
    for number, target in enumerate(("/sys/devices/pci0000:00/eth0", "../../../host/sys/devices/pci0000:00/eth0")):
        link = tmp_path / str(number)
        link.symlink_to(target)
        assert SysfsFolder(str(link), errors).tree_path("eth0") == "pci0000:00/eth0"
    assert errors == []


@pytest.mark.parametrize("target", ["/", "..", "../../devices/pci0000:00/other", "/sys/class/eth0"])
def test_a_link_to_somewhere_else_has_no_place(tmp_path: Path, errors: list[str], target: str) -> None:
    (tmp_path / "eth0").symlink_to(target)

    assert SysfsFolder(str(tmp_path / "eth0"), errors).tree_path("eth0") == ""
    assert errors == [f"{tmp_path}/eth0: link to {target!r}, not to the device's folder below devices"]


def test_a_number_with_too_many_digits_is_quoted_in_part(tmp_path: Path, errors: list[str]) -> None:
    (tmp_path / "mtu").write_text("9" * 5000)

    assert SysfsFolder(str(tmp_path), errors).number("mtu") is None
    assert errors == [f"{tmp_path}/mtu: '{'9' * 40}' is not a number"]


def test_bytes_that_are_no_text_are_escaped_in_contents_and_names(tmp_path: Path) -> None:
    (tmp_path / "name").write_bytes(b"eth\xff\n")

    assert read_text(str(tmp_path / "name")) == r"eth\xff"
    with pytest.raises(Unreadable, match=r"/eth\\xff: No such file or directory"):
        read_text(f"{tmp_path}/eth\udcff")
    assert printable("netzgerät") == "netzgerät"
