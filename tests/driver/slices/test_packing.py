from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.slices.model import layout, pack

NAMES = st.lists(st.integers(0, 60).map(lambda number: f"d{number:02}"), unique=True, max_size=40)
LIMITS = st.integers(1, 9)


def devices(names: list[str]) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def changed(before: tuple[tuple[str, ...], ...], after: tuple[tuple[str, ...], ...]) -> int:
    """Slices that are not in both, place by place."""
    longest = max(len(before), len(after))
    padded = [[*each, *[None] * (longest - len(each))] for each in (before, after)]
    return sum(one != other for one, other in zip(*padded, strict=True))


@given(NAMES, LIMITS)
def test_a_first_packing_is_full_and_in_order(names: list[str], limit: int) -> None:
    slices = layout(pack(devices(names), limit=limit))
    assert [name for each in slices for name in each] == names
    assert all(len(each) == limit for each in slices[:-1])


@given(NAMES, NAMES, LIMITS)
def test_everything_is_packed_once_within_the_limit_and_stays_where_it_was(
    old: list[str], new: list[str], limit: int
) -> None:
    before = layout(pack(devices(old), limit=limit))
    after = layout(pack(devices(new), before, limit))
    assert sorted(name for each in after for name in each) == sorted(new)
    assert all(len(each) <= limit for each in after)
    assert all(list(each) == sorted(each, key=new.index) for each in after)
    for number, each in enumerate(before):
        assert set(each) & set(new) <= set(after[number] if number < len(after) else ())


@given(NAMES, LIMITS, st.data())
def test_one_device_more_or_less_changes_one_slice(names: list[str], limit: int, data: st.DataObject) -> None:
    before = layout(pack(devices(names), limit=limit))
    added = [*names, "new"]
    assert changed(before, layout(pack(devices(added), before, limit))) == 1
    if names:
        gone = data.draw(st.sampled_from(names))
        without = layout(pack(devices([name for name in names if name != gone]), before, limit))
        assert changed(before, without) == 1
        # It comes back to the hole that it left, or to the only one there is.
        assert len(layout(pack(devices([*names]), without, limit))) == len(before)


def test_a_device_that_comes_back_fills_the_first_hole() -> None:
    assert layout(pack(devices(["a", "c", "d", "e"]), [["a", "b"], ["c", "d"]], 2)) == (("a", "e"), ("c", "d"))


def test_slices_that_run_empty_go_from_the_end_only() -> None:
    assert layout(pack(devices(["a"]), [["a"], ["b"], ["c"]], 1)) == (("a",),)
    assert layout(pack(devices(["c"]), [["a"], ["b"], ["c"]], 1)) == ((), (), ("c",))


def test_no_devices_are_one_empty_slice() -> None:
    assert layout(pack([])) == ((),)
    assert layout(pack([], [["a"], ["b"]])) == ((),)


def test_an_overfull_slice_gives_up_its_last_devices() -> None:
    assert layout(pack(devices(["a", "b", "c"]), [["a", "b", "c"]], 2)) == (("a", "b"), ("c",))


def test_a_name_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"devices: 'a' is the name of two devices; names must be unique in a pool"):
        pack(devices(["a", "b", "a"]))


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"limit: 0 devices in a slice; it must be 1 or more"):
        pack([], limit=0)
