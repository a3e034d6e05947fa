"""``ostler devices`` draws which memory slices of a GPU are taken, and by whom."""

from __future__ import annotations

import pytest

from driver.devices.partitions import partitioned
from driver.devices.view import door_offer
from node.inventory.model import Device, Snapshot
from node.ledger.holds import Hold
from node.ledger.offer_context import OfferContext, by_place
from node.offer import Offer
from node.partitions import partition_name
from node.rules import Door
from ostler.admin.messages import devices_message
from ostler.cli.devices import _print_table
from protos.agent.v1alpha1 import agent_pb2
from tests.making.partitions import H100, RULE, in_mode, instance, parted

GPU = in_mode(parted(0), mig=True)
FIRST, LARGE = H100[0], next(shape for shape in H100 if shape.profile == "3g.40gb" and shape.start == 4)


def listed(*devices: Device, holds: tuple[Hold, ...] = ()) -> agent_pb2.ListDevicesResponse:
    snapshot = Snapshot(1, tuple(sorted(devices, key=lambda device: device.name)))
    made = [hold.device for hold in holds]
    offer = door_offer(partitioned(snapshot, (RULE,), made), (RULE,))
    return devices_message(snapshot, Offer(), offer, OfferContext(by_place(holds)))


def shown(answer: agent_pb2.ListDevicesResponse, capsys: pytest.CaptureFixture[str]) -> list[str]:
    _print_table(answer)
    lines = capsys.readouterr().out.splitlines()
    return lines[1 + len(answer.devices) :]


def held(shape_name: str, slices: tuple[int, int]) -> Hold:
    return Hold(shape_name, Door.DRA, "team/one", 0.0, owner="uid", within=(GPU.name,), slices=slices)


def test_a_gpu_that_nobody_has_is_free(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(listed(parted(0)), capsys) == [f"{GPU.name} [........] all memory slices are free"]


def test_taken_and_existing_partitions_are_in_the_bar_with_who_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    hold = held(partition_name(GPU.name, LARGE), (4, 4))
    answer = listed(GPU, instance(GPU, FIRST), instance(GPU, LARGE), holds=(hold,))
    assert shown(answer, capsys) == [
        f"{GPU.name} [a...bbbb] 3 of 8 memory slices are free",
        "  a  1g.10gb at slice 0: not held",
        "  b  3g.40gb at slices 4-7: team/one",
    ]


def test_a_partition_that_is_being_made_is_taken_already(capsys: pytest.CaptureFixture[str]) -> None:
    hold = held(partition_name(GPU.name, LARGE), (4, 4))
    assert "  a  3g.40gb at slices 4-7: team/one" in shown(listed(parted(0), holds=(hold,)), capsys)


def test_an_instance_is_offered_as_the_partition_that_it_is() -> None:
    answer = listed(GPU, instance(GPU, FIRST))
    found = {device.name: device for device in answer.devices}[instance(GPU, FIRST).name]
    assert (found.resource, found.door, found.offered_as) == ("nvidia.com/mig-1g.10gb", "dra", "Healthy")


def test_a_gpu_that_no_rule_divides_has_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = Snapshot(1, (parted(0),))
    assert shown(devices_message(snapshot, Offer()), capsys) == []
