from __future__ import annotations

from driver.slices.model import Slice, node_owner
from driver.slices.planning import BEYOND, ByDeviceNames, ByIndex
from driver.slices.store import StoredSlice


def stored(name: str, *devices: str, generation: int = 1) -> StoredSlice:
    return StoredSlice(
        name, f"uid-{name}", "p", generation, {"spec": {"devices": [{"name": each} for each in devices]}}
    )


def wanted(*devices: str) -> Slice:
    return Slice(tuple({"name": each} for each in devices))


def test_the_number_stands_in_front_of_the_name() -> None:
    names = ["00000-a", "00001-a", "00002-a", "0000a-a", "000000-a", "zzzzz-a", "00001", "a-00001"]
    found = ByIndex().match([stored(name) for name in names], [wanted()] * 2)
    assert found == {"00000-a": 0, "00001-a": 1, "00002-a": BEYOND, "0000a-a": BEYOND}


def test_very_many_slices_need_more_digits() -> None:
    assert ByIndex().generate_name(255, 256, "d", None) == "000ff-d-"
    assert ByIndex().generate_name(5, 0x100001, "d", node_owner("n")) == "000005-d-n-"
    assert ByIndex().match([stored("00000-a")], [wanted()] * 0x100001) == {}


def test_the_old_way_is_by_the_devices() -> None:
    old = [stored("x", "b", "a"), stored("y", "c"), stored("z", "c"), stored("w", "d")]
    assert ByDeviceNames().match(old, [wanted("a", "b"), wanted("c")]) == {"x": 0, "y": 1}
    assert ByDeviceNames().match([stored("x", "a")], [wanted("b")]) == {"x": 0}
    assert ByDeviceNames().generate_name(3, 9, "d", node_owner("n")) == "n-d-"


def test_the_layout_is_that_of_the_highest_generation() -> None:
    slices = [stored("00000-a", "a"), stored("00002-a", "c", "d"), stored("00001-b", "b", generation=0)]
    assert ByIndex().layout(slices) == (("a",), (), ("c", "d"))
    assert ByIndex().layout([]) == ()
    assert ByDeviceNames().layout(slices) == (("a",), ("c", "d"))


def test_a_strangers_name_does_not_make_a_layout_long() -> None:
    ours = [stored(f"{index:05x}-a", f"d{index}") for index in (0, 2)]
    strangers = [stored("fffff-a", "x"), stored("0bee5-a", "y"), stored("a-7", "z")]
    assert ByIndex().layout([*ours, *strangers]) == (("d0",), (), ("d2",))
    assert ByIndex().layout(strangers) == ()
    far = [stored("00014-a", "e")]
    assert len(ByIndex().layout([*ours, *far])) == 21
