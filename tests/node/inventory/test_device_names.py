from __future__ import annotations

from node.inventory.assembly import DeviceNames


def test_a_name_is_given_once_and_numbered_after_that() -> None:
    names = DeviceNames()
    assert [names.unique(name) for name in ("a", "b", "a", "a", "a-n2")] == ["a", "b", "a-n2", "a-n3", "a-n2-n2"]
