"""An interface that does not come back is on record until it does: its device is held, and it is restored on sight."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.claims.model import ClaimError, Unavailable
from driver.claims.service import ClaimService
from driver.interfaces.moving import InterfaceMoves
from driver.nri.sandboxes import SandboxRefused
from node.interfaces.links import change_link, link_named
from node.interfaces.namespace import NetworkNamespace
from tests.driver.interfaces.test_in_real_namespaces import KernelNode
from tests.making.claim_service import Killed, reference
from tests.making.moved_interfaces import NIC1, NIC2, InterfaceNode
from tests.making.network_namespaces import namespaces
from tests.waiting import background, eventually

LOST = (
    f"claim default/claim-1: interface eth1 of device {NIC1}: not found on the node or in the pod; pod default/pod-1 "
    "had it; its device is held until it is back; check the device and its driver"
)
GONE = "it will not come back, because its device left the bus or another interface has its name"
HELD = "pending release: its network interface eth1 is lost; pod default/pod-1 had it"
WHY = "it was not on the node when the pod ended, and is restored when it is back"


async def lost(place: InterfaceNode, *devices: str) -> ClaimService:
    """A node whose pod ended with the interface of the first NIC hidden, and whose claim was released."""
    service = await place.prepared(*devices)
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    place.mover.returns = False
    Path(sandbox.netns).unlink()
    await service.unprepare(reference())
    return service


def holds(service: ClaimService) -> list[tuple[str, str]]:
    return [(hold.device, hold.words) for hold in service.ledger.all]


async def test_the_claim_is_released_and_the_device_held(place: InterfaceNode) -> None:
    service = await lost(place)
    assert place.node.events.of("InterfaceLost") == [LOST]
    assert holds(service) == [(NIC1, HELD)]
    assert place.journal == []
    assert place.lost == [NIC1]
    shown = place.interfaces.places()[NIC1]
    assert (shown.pod, shown.interface, shown.problem) == ("default/pod-1", "eth1", f"it is lost; {WHY}")


async def test_only_what_is_missing_is_lost(place: InterfaceNode) -> None:
    service = await place.prepared(NIC1, NIC2)
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    place.mover.places[NIC1] = "/a/namespace/of/the/pods/own"
    place.mover.returns = False
    await service.unprepare(reference())
    assert holds(service) == [(NIC1, HELD)]
    assert place.mover.place(NIC2) == "host"


@pytest.mark.parametrize("agents", [0, 2])
async def test_it_is_restored_when_it_is_back_by_whichever_agent_runs(place: InterfaceNode, agents: int) -> None:
    service = await lost(place)
    for _ in range(agents):
        await service.close()
        service = await place.agent()
    assert holds(service) == [(NIC1, HELD)]
    async with background(place.interfaces.keep()):
        place.mover.calls.clear()
        place.interfaces.on_inventory_changed()
        await eventually(lambda: f"detach {NIC1}" in place.mover.calls)
        assert holds(service) == [(NIC1, HELD)]
        place.mover.returns = True
        place.interfaces.on_inventory_changed()
        await eventually(lambda: holds(service) == [])
        assert place.is_home(NIC1)
        assert place.lost == []
        assert place.interfaces.places() == {}
        [found] = place.node.events.of("InterfaceFound")
        assert found.startswith(f"interface eth1 of device {NIC1} is back on the node after ")
        assert found.endswith(" s, and has what it had before pod default/pod-1 got it")


async def test_one_whose_name_was_taken_meanwhile_comes_back_under_another(place: InterfaceNode) -> None:
    service = await lost(place)
    place.mover.taken["eth1"] = "eth1_1"
    place.mover.returns = True
    async with background(place.interfaces.keep()):
        place.interfaces.on_inventory_changed()
        await eventually(lambda: holds(service) == [])
    [found] = place.node.events.of("InterfaceFound")
    assert found.endswith(
        "pod default/pod-1 got it, but is called eth1_1, because another interface has its name; rename one of them"
    )


async def test_it_is_looked_for_without_any_sign_of_it(place: InterfaceNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driver.interfaces.lost._OFTEN", 0.01)
    service = await lost(place)
    async with background(place.interfaces.keep()):
        place.mover.returns = True
        await eventually(lambda: holds(service) == [])


async def test_a_device_that_left_the_machine_is_held_no_longer(place: InterfaceNode) -> None:
    service = await lost(place)
    place.mover.gone.add(NIC1)
    async with background(place.interfaces.keep()):
        place.interfaces.on_inventory_changed()
        await eventually(lambda: holds(service) == [])
        assert place.node.events.of("InterfaceLost")[1:] == [
            (f"interface eth1 of device {NIC1}: {GONE}; pod default/pod-1 had it, and its device is no longer held")
        ]
        assert place.lost == []


async def test_a_device_that_left_the_machine_with_its_pod_is_not_held_at_all(place: InterfaceNode) -> None:
    place.mover.gone.add(NIC1)
    service = await lost(place)
    assert holds(service) == []
    assert place.lost == []
    [told] = place.node.events.of("InterfaceLost")
    assert told == (f"claim default/claim-1: interface eth1 of device {NIC1}: {GONE}; pod default/pod-1 had it")


async def test_the_next_claim_waits_and_is_told_why(place: InterfaceNode) -> None:
    service = await lost(place)
    place.put(2, NIC1)
    with pytest.raises(ClaimError) as refused:
        await service.prepare(reference(2))
    assert f"device {NIC1} is {HELD}; ostler frees it when that is over, and the kubelet asks again" in str(
        refused.value
    )
    place.mover.returns = True
    async with background(place.interfaces.keep()):
        place.interfaces.on_inventory_changed()
        await eventually(lambda: holds(service) == [])
        await service.prepare(reference(2))


async def test_the_next_pod_of_the_same_claim_gets_it_restored_or_not_at_all(place: InterfaceNode) -> None:
    await place.prepared()
    first, second = place.sandbox(), place.sandbox(2)
    await place.interfaces.run(first)
    place.mover.returns = False
    Path(first.netns).unlink()
    await place.interfaces.synchronize([])

    async def is_lost() -> bool:
        await place.interfaces.retry()
        return bool(place.node.events.of("InterfaceLost"))

    await eventually(is_lost)
    with pytest.raises(
        SandboxRefused, match=f"claim default/claim-1: interface eth1 .* is lost; pod default/pod-1 had it: {WHY}"
    ):
        await place.interfaces.run(second)
    third = place.sandbox(3)
    place.mover.returns = True
    place.mover.calls.clear()
    await place.interfaces.run(third)
    assert place.mover.calls[:2] == [f"detach {NIC1}", f"look {NIC1}"]
    assert place.mover.place(NIC1) == third.netns
    assert place.lost == []


async def test_killed_between_the_record_of_the_loss_and_the_end_of_the_move_both_agree(
    place: InterfaceNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(InterfaceMoves, "forget", killed)
        with pytest.raises(Killed):
            await lost(place)
    assert place.journal
    assert place.lost
    service = await place.agent()
    await service.unprepare(reference())
    assert holds(service) == [(NIC1, HELD)]
    assert place.journal == []
    assert place.lost


async def test_a_reboot_ends_the_loss(place: InterfaceNode) -> None:
    await lost(place)
    place.node.boot = "boot-2"
    service = await place.agent()
    assert holds(service) == []
    assert place.lost == []
    assert place.interfaces.places() == {}


async def test_a_loss_that_cannot_be_recorded_keeps_the_claim(place: InterfaceNode) -> None:
    folder = place.node.root / "state/interfaces/lost"
    service = await place.prepared()
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    folder.write_text("in the way")
    place.mover.returns = False
    Path(sandbox.netns).unlink()
    with pytest.raises(Unavailable, match="check the state folder and its disk; it keeps its devices until they are"):
        await service.unprepare(reference())
    assert place.journal
    folder.unlink()
    await service.unprepare(reference())
    assert holds(service) == [(NIC1, HELD)]


async def test_a_damaged_record_is_reported(place: InterfaceNode) -> None:
    await lost(place)
    (place.node.root / f"state/interfaces/lost/{NIC1}.json").write_text("{")
    service = await place.agent()
    assert holds(service) == []
    [told] = place.node.events.of("ClaimRecoveryIncomplete")
    assert told.startswith(f"the record of the lost interface of device {NIC1}: ")
    assert told.endswith("; when the interface is back on the node, check its name, addresses and MTU")


async def test_one_that_is_back_but_cannot_be_restored_is_tried_again(place: InterfaceNode) -> None:
    service = await lost(place)
    place.mover.returns = True
    place.mover.faults[NIC1, "detach"] = "interface eth1: busy"
    async with background(place.interfaces.keep()):
        place.interfaces.on_inventory_changed()
        await eventually(lambda: place.node.events.of("InterfaceNotReturned"))
        assert place.node.events.of("InterfaceNotReturned") == [
            "ostler cannot restore a lost interface, and tries again: interface eth1: busy"
        ]
        assert place.interfaces.places()[NIC1].problem == "it is lost; interface eth1: busy"
        place.mover.faults.clear()
        place.interfaces.on_inventory_changed()
        await eventually(lambda: holds(service) == [])


@pytest.fixture
def real(tmp_path: Path) -> Iterator[tuple[KernelNode, NetworkNamespace]]:
    with namespaces(3) as (host, pod, child), NetworkNamespace(child.path) as hidden:
        yield KernelNode(tmp_path, host, pod), hidden


@pytest.mark.needs_root
async def test_one_that_a_pod_hid_and_let_go_later_has_nothing_of_the_pods(
    real: tuple[KernelNode, NetworkNamespace],
) -> None:
    place, hidden = real
    place.put(1, NIC1)
    service = await place.agent()
    await service.prepare(reference())
    sandbox = place.sandbox()
    sandbox = type(sandbox)(sandbox.id, sandbox.uid, "default", "pod-1", str(place.pod.path))
    await place.interfaces.run(sandbox)
    place.pod.ip("link set eth1 down", "link set eth1 name mine mtu 1300 address 02:66:00:00:00:66")
    with NetworkNamespace(place.pod.path) as pod, pod.netlink() as netlink:
        change_link(netlink, link_named(netlink, "mine").index, namespace=hidden.fileno())  # type: ignore[union-attr]
    await service.unprepare(reference())
    assert list(place.links(place.host)) == ["eth2"]
    assert holds(service) == [(NIC1, HELD)]
    # What the kernel does with a physical device when its namespace goes; it destroys a veth.
    with NetworkNamespace(place.host.path) as host, hidden.netlink() as netlink:
        change_link(netlink, link_named(netlink, "mine").index, namespace=host.fileno())  # type: ignore[union-attr]
    async with background(place.interfaces.keep()):
        place.interfaces.on_inventory_changed()
        await eventually(lambda: holds(service) == [])
        assert place.links(place.host) == place.before
