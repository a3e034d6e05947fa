"""The UUID in a function's vital product data, which tells the faces of one NIC."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.inventory.sysfs.vpd import uuid_in, vpd_uuid
from tests.making.data_direct import vpd

UUID = "58a2e1f0b5a4ee118000b8cef6123456"


def test_it_is_the_field_v3_of_the_read_only_part() -> None:
    assert uuid_in(vpd(UUID)) == UUID
    assert uuid_in(vpd(UUID.upper())) == UUID
    assert uuid_in(vpd("")) == ""


@pytest.mark.parametrize(
    "content", [b"", b"\x78", b"\x82\xff\xff", b"\x90\x05\x00V3\xffab", b"\x90", vpd("not hex\x80")]
)
def test_other_contents_have_none(content: bytes) -> None:
    assert uuid_in(content) == ""


@given(st.binary(max_size=400))
def test_any_content_is_read_to_an_end(content: bytes) -> None:
    assert uuid_in(content).isascii()


@given(st.integers(0, 80))
def test_a_beginning_tells_all_or_nothing(cut: int) -> None:
    whole = vpd(UUID)
    assert uuid_in(whole[: len(whole) - cut]) in ("", UUID)


def test_no_more_is_read_than_needed(tmp_path: Path) -> None:
    (tmp_path / "vpd").write_bytes(vpd(UUID, name="x" * 600))
    assert vpd_uuid(str(tmp_path)) == UUID
    (tmp_path / "vpd").write_bytes(bytes(100_000))
    assert vpd_uuid(str(tmp_path)) == ""


def test_a_function_without_vpd_has_none(tmp_path: Path) -> None:
    assert vpd_uuid(str(tmp_path)) == ""
    (tmp_path / "vpd").mkdir()
    assert vpd_uuid(str(tmp_path)) == ""
