"""People see in which pod a NIC's interface is, and why it is not where it should be."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import pytest

from driver.interfaces.observers import InterfacePlace
from node.inventory.model import Snapshot
from node.offer import Offer
from ostler.admin.dra import interfaces_message
from ostler.admin.messages import devices_message
from ostler.cli import devices, status
from protos.agent.v1alpha1 import agent_pb2
from tests.making.devices import nic

NIC1, NIC2 = nic(1, ifName="eth1"), nic(2, ifName="eth2")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (InterfacePlace("team/a", "net1"), "its interface is in pod team/a as net1"),
        (
            InterfacePlace("team/a", "net1", "interface eth1: busy"),
            "its interface net1, of pod team/a, is not where it should be: interface eth1: busy",
        ),
    ],
)
def test_a_device_names_the_pod_of_its_interface(place: InterfacePlace, words: str) -> None:
    message = devices_message(
        Snapshot(1, (NIC1, NIC2)), Offer(), places=interfaces_message({NIC1.name: place, "gone": place})
    )
    assert [each.HasField("interface") for each in message.devices] == [True, False]
    with redirect_stdout(io.StringIO()) as out:
        devices._print_table(message)
    (line,) = (each for each in out.getvalue().splitlines() if words in each)
    assert line.startswith(NIC1.name)


def test_the_status_says_whether_the_runtime_reports_pods() -> None:
    said = "absent: /run/nri.sock does not exist"
    for dra, expected in ((agent_pb2.DraStatus(nri=said), True), (agent_pb2.DraStatus(), False)):
        with redirect_stdout(io.StringIO()) as out:
            status._print_text(agent_pb2.GetStatusResponse(dra=dra))
        assert (f"interfaces move into pods by NRI: {said}" in out.getvalue()) is expected
