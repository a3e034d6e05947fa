"""What counters and link registers of PCIe mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.health.kernel.functions import (
    CORRECTABLE,
    FATAL,
    NONFATAL,
    AerCounts,
    PcieLink,
    aer_total,
    aer_troubles,
    link_troubles,
    pcie_link,
)
from node.health.signal import Condition, Trouble

COUNTS = st.none() | st.integers(0, 10**6)
AER = st.builds(AerCounts, COUNTS, COUNTS, COUNTS)


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("Undefined 0\nDLP 2\nTLP 1\nTOTAL_ERR_FATAL 3\n", 3),
        ("TOTAL_ERR_NONFATAL 0\n", 0),
        ("RxErr 4\nTOTAL_ERR_COR 4", 4),
        ("RxErr 4\n", None),
        ("TOTAL_ERR_FATAL many", None),
        ("", None),
    ],
)
def test_the_sum_of_an_error_file_is_its_total(text: str, total: int | None) -> None:
    assert aer_total(text) == total


@pytest.mark.parametrize(
    ("lanes", "speed", "link"),
    [
        ("16", "32.0 GT/s PCIe", PcieLink(16, 32.0)),
        ("8", "2.5 GT/s", PcieLink(8, 2.5)),
        ("0", "Unknown", PcieLink()),
        ("63", "Unknown speed", PcieLink()),
        ("255", "64.0 GT/s PCIe", PcieLink(None, 64.0)),
        ("", "", PcieLink()),
    ],
)
def test_a_link_is_read_from_its_two_texts(lanes: str, speed: str, link: PcieLink) -> None:
    assert pcie_link(lanes, speed) == link


def test_any_growth_of_errors_that_were_not_corrected_is_a_trouble() -> None:
    before = AerCounts(0, 1, 0)
    nonfatal, fatal = AerCounts(0, 2, 0), AerCounts(0, 2, 1)
    assert aer_troubles(before, nonfatal, 8.0) == (
        Condition(Trouble.AER, "PCIe errors that could not be corrected", NONFATAL),
    )
    assert aer_troubles(before, fatal, 8.0) == (Condition(Trouble.AER, "fatal PCIe errors", FATAL),)


def test_corrected_errors_are_one_beyond_a_rate() -> None:
    assert aer_troubles(AerCounts(100, 0, 0), AerCounts(180, 0, 0), 8.0) == ()
    (found,) = aer_troubles(AerCounts(100, 0, 0), AerCounts(181, 0, 0), 8.0)
    assert (found.kind, found.code) == (Trouble.AER, CORRECTABLE)
    assert found.detail == "more than 10 corrected PCIe errors a second"


@given(AER, st.floats(0, 1e6))
def test_counters_that_did_not_grow_say_nothing(counts: AerCounts, seconds: float) -> None:
    assert aer_troubles(counts, counts, seconds) == ()
    assert aer_troubles(counts, AerCounts(0, 0, 0), seconds) == ()
    assert aer_troubles(AerCounts(), counts, seconds) == ()


@given(AER, AER, st.floats(0, 1e6))
def test_a_trouble_says_the_same_as_long_as_it_lasts(before: AerCounts, now: AerCounts, seconds: float) -> None:
    assert all("1" not in each.detail or "10" in each.detail for each in aer_troubles(before, now, seconds))


def test_lanes_that_are_missing_are_a_trouble_of_every_device() -> None:
    (found,) = link_troubles(PcieLink(8, 2.5), PcieLink(16, 32.0), speed_counts=False)
    assert found == Condition(Trouble.PCIE_LINK, "its link runs with 8 of 16 PCIe lanes")


def test_a_gpu_that_saves_power_has_no_trouble() -> None:
    assert link_troubles(PcieLink(16, 2.5), PcieLink(16, 32.0), speed_counts=False) == ()


def test_a_nic_that_is_slow_has_one() -> None:
    (found,) = link_troubles(PcieLink(8, 8.0), PcieLink(16, 16.0), speed_counts=True)
    assert found.detail == "its link runs with 8 of 16 PCIe lanes and 8 of 16 GT/s"


def test_what_is_not_known_is_no_trouble() -> None:
    assert link_troubles(PcieLink(), PcieLink(16, 32.0), speed_counts=True) == ()
    assert link_troubles(PcieLink(1, 2.5), PcieLink(), speed_counts=True) == ()


def test_a_link_should_be_what_both_ends_can_do() -> None:
    assert PcieLink(16, 64.0).lesser(PcieLink(8, 32.0)) == PcieLink(8, 32.0)
    assert PcieLink(16, 32.0).lesser(PcieLink()) == PcieLink(16, 32.0)
