"""A layout's instances get places that the driver has, all at once, or a sentence says why they cannot."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.inventory.facts import MigProfile
from node.inventory.model import Device, DeviceKind, PartitionShape
from node.inventory.nvidia.layouts import LayoutError, plan_layout, shapes_of
from tests.making import mig_tables

GIB = 1 << 30


def gpu(table: tuple[MigProfile, ...] = mig_tables.A100_40GB, gigabytes: int = 40) -> Device:
    return Device("gpu-0", DeviceKind.GPU, "nvidia", partitions=shapes_of(table, gigabytes * GIB))


def places(profiles: str, *existing: tuple[int, int], whole: Device | None = None) -> list[tuple[str, int]]:
    planned = plan_layout(whole or gpu(), profiles.split(), existing)
    for one, other in combinations(planned, 2):
        assert one.start + one.size <= other.start or other.start + other.size <= one.start
    return [(shape.profile, shape.start) for shape in planned]


@pytest.mark.parametrize(
    ("profiles", "expected"),
    [
        ("", []),
        ("7g.40gb", [("7g.40gb", 0)]),
        (" 1g.5gb" * 7, [("1g.5gb", start) for start in range(7)]),
        (" 1g.10gb" * 4, [("1g.10gb", start) for start in (0, 2, 4, 6)]),
        ("3g.20gb 3g.20gb", [("3g.20gb", 0), ("3g.20gb", 4)]),
        ("3g.20gb 4g.20gb", [("4g.20gb", 0), ("3g.20gb", 4)]),
        # Only with the large one at the end is there room for all: the last slice has no place for a small one.
        ("1g.5gb 1g.5gb 2g.10gb 3g.20gb", [("2g.10gb", 0), ("1g.5gb", 2), ("1g.5gb", 3), ("3g.20gb", 4)]),
        ("1g.5gb+me 1g.5gb 2g.10gb 2g.10gb", [("2g.10gb", 0), ("2g.10gb", 2), ("1g.5gb", 4), ("1g.5gb+me", 5)]),
    ],
)
def test_the_largest_are_placed_first_and_all_fit(profiles: str, expected: list[tuple[str, int]]) -> None:
    assert sorted(places(profiles), key=lambda place: place[1]) == expected


@given(
    st.lists(st.sampled_from(("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "1g.5gb+me")), min_size=1, max_size=4),
    st.sets(st.sampled_from([(shape.profile_id, shape.start) for shape in gpu().partitions]), max_size=3),
)
def test_the_first_of_all_choices_is_taken(profiles: list[str], existing: set[tuple[int, int]]) -> None:
    shapes = gpu().partitions

    def fits(chosen: tuple[PartitionShape, ...]) -> bool:
        slices = [each for shape in chosen for each in range(shape.start, shape.start + shape.size)]
        return len(set(slices)) == len(slices) and sum(shape.profile.endswith("+me") for shape in chosen) <= 1

    def weight(profile: str) -> tuple[int, int]:
        found = next(shape for shape in shapes if shape.profile == profile)
        return -found.size, -next(each.value for each in found.capacity if each.name == "multiprocessors")

    ordered = sorted(profiles, key=lambda profile: (*weight(profile), profile))
    choices = [
        sorted(
            (shape for shape in shapes if shape.profile == profile),
            key=lambda shape: ((shape.profile_id, shape.start) not in existing, shape.start),
        )
        for profile in ordered
    ]
    expected = next((each for each in product(*choices) if fits(each)), None)
    try:
        planned = plan_layout(gpu(), profiles, existing)
    except LayoutError:
        planned = None
    if expected is None or planned is None:
        # The engines that this leaves out can only forbid more.
        assert planned is None
    else:
        assert sorted(planned, key=str) == sorted(expected, key=str)


def test_what_exists_stays_where_it_is() -> None:
    assert places("1g.5gb 3g.20gb", (9, 0), (19, 6)) == [("3g.20gb", 0), ("1g.5gb", 6)]
    # Unless the rest does not fit then.
    assert ("3g.20gb", 4) in places("1g.5gb 1g.5gb 2g.10gb 3g.20gb", (9, 0))


def test_partitions_that_stay_are_planned_around() -> None:
    whole = gpu()
    fixed = next(shape for shape in whole.partitions if (shape.profile, shape.start) == ("1g.5gb", 0))
    assert [shape.start for shape in plan_layout(whole, ["3g.20gb"], fixed=[fixed])] == [4]
    with pytest.raises(LayoutError, match=r"1 x 7g\.40gb do not fit on it together beside 1g\.5gb"):
        plan_layout(whole, ["7g.40gb"], fixed=[fixed])


@pytest.mark.parametrize(
    "profiles", [" 1g.5gb" * 8, "1g.5gb+me 1g.5gb+me", "4g.20gb 4g.20gb", "3g.20gb 3g.20gb 1g.5gb", "7g.40gb 1g.5gb"]
)
def test_what_does_not_fit_is_refused_with_the_counts(profiles: str) -> None:
    with pytest.raises(
        LayoutError, match=r"gpu-0: \d x .* do not fit on it together.*; take fewer or smaller instances"
    ):
        places(profiles)


def test_a_profile_that_the_gpu_lacks_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(LayoutError, match=r"it has no MIG profile 1g\.10gb; choose from its profiles \(1g\.6gb, "):
        places("1g.10gb", whole=gpu(mig_tables.A30, 24))
    with pytest.raises(LayoutError, match="none: its MIG profiles are not known"):
        plan_layout(Device("gpu-0", DeviceKind.GPU, "nvidia"), ["1g.5gb"])


@pytest.mark.parametrize(
    ("table", "gigabytes", "profiles"),
    [
        (mig_tables.A30, 24, "1g.6gb 1g.6gb 2g.12gb"),
        (mig_tables.A100_80GB, 80, "1g.10gb 1g.10gb 2g.20gb 3g.40gb"),
        (mig_tables.H100_80GB, 80, "1g.10gb 1g.10gb 2g.20gb 3g.40gb"),
        (mig_tables.H200_141GB, 141, "1g.18gb 1g.18gb 2g.35gb 3g.71gb"),
        (mig_tables.B200_180GB, 180, "1g.23gb 1g.23gb 2g.45gb 3g.90gb"),
        (mig_tables.B200_180GB, 180, "1g.45gb 1g.45gb 1g.45gb 1g.45gb"),
        (mig_tables.H100_80GB, 80, "4g.40gb 3g.40gb"),
    ],
)
def test_nvidias_own_layouts_fit(table: tuple[MigProfile, ...], gigabytes: int, profiles: str) -> None:
    """``all-balanced`` of mig-parted's example, and others that its file has for these GPUs."""
    assert len(places(profiles, whole=gpu(table, gigabytes))) == len(profiles.split())
