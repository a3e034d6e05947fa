"""The interfaces of claims are in the pod while its sandbox lives, and on the node before and after."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from driver.claims.kubelet import KubeletClaims
from driver.claims.model import ClaimError
from driver.interfaces.claim_mover import InterfacePace
from driver.interfaces.observers import InterfacePlace
from driver.nri.sandboxes import Sandbox, SandboxRefused
from node.values import replace
from tests.making.claim_service import GPU0, claim, reference, result
from tests.making.devices import nic
from tests.making.moved_interfaces import NIC1, NIC2, InterfaceNode
from tests.waiting import eventually


async def test_interfaces_are_in_the_pod_from_the_start_of_its_sandbox_to_its_end(place: InterfaceNode) -> None:
    service = await place.prepared(NIC1, NIC2)
    assert place.is_home()
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    assert place.mover.place(NIC1) == place.mover.place(NIC2) == sandbox.netns
    assert place.interfaces.places() == {
        NIC1: InterfacePlace("default/pod-1", "eth1"),
        NIC2: InterfacePlace("default/pod-1", "eth2"),
    }
    await place.interfaces.stop(sandbox)
    assert place.is_home()
    assert place.interfaces.places() == {}
    await place.interfaces.removed(sandbox)
    await service.unprepare(reference())
    assert place.reports == [("attached", "uid-1", (NIC1, NIC2)), ("detached", "uid-1", "")]
    detached = [call for call in place.mover.calls if call.startswith("detach")]
    assert detached == [f"detach {NIC2}", f"detach {NIC1}"]


async def test_the_guard_is_there_only_while_all_interfaces_are_in_the_pod(place: InterfaceNode) -> None:
    await place.prepared(NIC1, NIC2)
    seen: list[bool] = []
    gate = place.guard().with_suffix(".gate")
    place.mover.before = lambda _: seen.extend((place.guard().exists(), gate.exists()))
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    assert json.loads(place.guard().read_text()) == {
        "interfaces": [
            {
                "device": device,
                "name": name,
                "hardwareAddress": "02:00:00:00:00:01",
                "addresses": ["10.0.0.1/24"],
                "mtu": 1500,
            }
            for device, name in ((NIC1, "eth1"), (NIC2, "eth2"))
        ]
    }
    assert place.guard().stat().st_mode & 0o777 == 0o644
    assert gate.is_fifo()
    await place.interfaces.stop(sandbox)
    assert seen
    assert not any(seen)
    assert not place.guard().exists()
    assert not gate.exists()


async def test_every_request_of_the_claim_has_the_guard(place: InterfaceNode) -> None:
    results = (result(NIC1, "nic"), result(NIC2, "nic"), result(GPU0, "gpu"))
    place.node.reader.put(claim(1, *results))
    service = await place.agent()
    await service.prepare(reference())
    spec = place.node.spec(1)
    assert spec is not None
    source = str(place.guard())
    mounts = {
        each["name"]: [
            (mount["hostPath"], mount["containerPath"], "ro" in mount["options"])
            for mount in each["containerEdits"].get("mounts", ())
            if mount["hostPath"] == source
        ]
        for each in spec["devices"]
    }
    guarded = [
        (source, "/var/run/ostler/interfaces/claim-1.json", True),
        (source, "/var/run/ostler/interfaces/by-uid/uid-1.json", True),
    ]
    assert mounts == {f"uid-1-{NIC1}": guarded, f"uid-1-{NIC2}": [], f"uid-1-{GPU0}": guarded}
    gate = str(place.guard().with_suffix(".gate"))
    # Without type and numbers: the runtime looks at the file, and creates no container where there is none.
    nodes = {
        each["name"]: [node for node in each["containerEdits"].get("deviceNodes", ()) if node["path"] == gate]
        for each in spec["devices"]
    }
    node = [{"path": gate, "permissions": "r"}]
    assert nodes == {f"uid-1-{NIC1}": node, f"uid-1-{NIC2}": [], f"uid-1-{GPU0}": node}


async def test_a_claim_without_interfaces_has_no_guard_and_pods_without_such_a_claim_are_let_through(
    place: InterfaceNode,
) -> None:
    place.node.reader.put(claim(1, result(GPU0)))
    service = await place.agent()
    await service.prepare(reference())
    assert "interfaces" not in json.dumps(place.node.spec(1))
    assert not place.interfaces.concerns(place.sandbox())
    place.put(2, NIC1, users=("pod-2",))
    await service.prepare(reference(2))
    assert place.interfaces.concerns(place.sandbox())
    await place.interfaces.run(place.sandbox(pod="pod-1"))
    assert place.is_home()


@pytest.mark.parametrize("call", ["look", "attach", "attached"])
async def test_an_interface_that_cannot_move_fails_the_sandbox_and_none_stays_in_it(
    place: InterfaceNode, call: str
) -> None:
    await place.prepared(NIC1, NIC2)
    place.mover.faults[NIC2, call] = "interface eth2: the kernel said: Device or resource busy"
    with pytest.raises(SandboxRefused) as refused:
        await place.interfaces.run(place.sandbox())
    text = "claim default/claim-1: interface eth2: the kernel said: Device or resource busy"
    assert str(refused.value) == text
    assert place.node.events.of("InterfaceNotMoved") == [f"pod default/pod-1: {text}"]
    assert place.reports[0] == ("detached", "uid-1", text)
    await place.interfaces.close()
    assert place.is_home()
    assert not place.guard().exists()


async def test_the_next_sandbox_of_the_pod_gets_them(place: InterfaceNode) -> None:
    await place.prepared()
    place.mover.faults[NIC1, "attach"] = "busy"
    with pytest.raises(SandboxRefused):
        await place.interfaces.run(place.sandbox(1))
    place.mover.faults.clear()
    await place.interfaces.run(place.sandbox(2))
    assert place.mover.place(NIC1) == place.sandbox(2).netns
    await place.interfaces.removed(place.sandbox(1))
    assert place.mover.place(NIC1) == place.sandbox(2).netns, "the end of an old sandbox is no concern of the new one"


@pytest.mark.parametrize("gone", [True, False])
async def test_a_sandbox_made_anew_takes_them_from_the_old_one(place: InterfaceNode, gone: bool) -> None:
    await place.prepared()
    old, new = place.sandbox(1), place.sandbox(2)
    await place.interfaces.run(old)
    if gone:
        Path(old.netns).unlink()
    await place.interfaces.run(new)
    assert place.mover.place(NIC1) == new.netns
    assert place.guard().exists()


async def test_several_claims_of_a_pod_move_together_or_not_at_all(place: InterfaceNode) -> None:
    place.put(1, NIC1)
    place.put(2, NIC2)
    service = await place.agent()
    await service.prepare(reference(1))
    await service.prepare(reference(2))
    place.mover.faults[NIC2, "attach"] = "busy"
    with pytest.raises(SandboxRefused, match="claim default/claim-2: busy"):
        await place.interfaces.run(place.sandbox(1))
    await place.interfaces.close()
    assert place.is_home()
    assert not place.guard(1).exists()


async def test_a_pod_on_the_nodes_network_is_refused(place: InterfaceNode) -> None:
    await place.prepared()
    with pytest.raises(SandboxRefused) as refused:
        await place.interfaces.run(Sandbox("sandbox-1", "pod-1", "default", "pod-1", host_network=True))
    assert str(refused.value) == (
        "pod default/pod-1 uses the node's network (hostNetwork: true), but the network interface of device "
        f"{NIC1} of claim default/claim-1 moves into the pod's own; set hostNetwork to false, or claim a NIC of a "
        "resource without moveInterface"
    )


async def test_a_pod_that_is_known_to_be_on_the_nodes_network_is_refused_when_its_claim_is_prepared(
    place: InterfaceNode,
) -> None:
    place.put(1, NIC1)
    place.on_host_network["pod-1"] = "default/pod-1"
    service = await place.agent()
    with pytest.raises(ClaimError) as refused:
        await service.prepare(reference())
    assert str(refused.value) == (
        "pod default/pod-1 uses the node's network (hostNetwork: true), but the network interface of device "
        f"{NIC1} of claim default/claim-1 moves into the pod's own; set hostNetwork to false, or claim a NIC of a "
        "resource without moveInterface"
    )
    assert service.ledger.all == ()


async def test_a_claim_for_several_pods_is_refused_when_it_is_prepared(place: InterfaceNode) -> None:
    place.put(1, NIC1, users=("pod-1", "pod-2"))
    service = await place.agent()
    with pytest.raises(ClaimError) as refused:
        await service.prepare(reference())
    assert str(refused.value) == (
        "claim default/claim-1 is reserved for 2 pods, but the network interface of device "
        f"{NIC1} moves into the network namespace of one; give each pod a claim of its own by a ResourceClaimTemplate"
    )


async def test_a_second_pod_of_the_claim_waits_for_the_end_of_the_first(place: InterfaceNode) -> None:
    """The kubelet gives a prepared claim to the next pod without a call to us; its record shows it."""
    await place.prepared()
    first, second = place.sandbox(1), place.sandbox(2, pod="pod-2")
    await place.interfaces.run(first)
    place.node.kubelet_knows(1, users=("pod-1", "pod-2"))
    with pytest.raises(SandboxRefused) as refused:
        await place.interfaces.run(second)
    assert str(refused.value) == (
        f"the network interface of device {NIC1} of claim default/claim-1 is in pod default/pod-1; pod default/pod-2 "
        "gets it when that pod has ended; give each pod a claim of its own by a ResourceClaimTemplate"
    )
    await place.interfaces.stop(first)
    third = place.sandbox(3, pod="pod-2")
    await place.interfaces.run(third)
    assert place.mover.place(NIC1) == third.netns


async def test_a_repeated_preparation_keeps_what_is_in_the_pod(place: InterfaceNode) -> None:
    service = await place.prepared()
    answer = await service.prepare(reference())
    await place.interfaces.run(place.sandbox())
    record = service.records()[0]
    place.node.devices = tuple(each for each in place.node.devices if each.device.name != NIC1)
    service.apply(place.node.view)
    assert await service.prepare(reference()) == answer
    assert service.records()[0] == record


async def test_fifty_pods_at_once(tmp_path: Path) -> None:
    place, numbers = InterfaceNode(tmp_path, nics=50), range(1, 51)
    devices = [nic(number).name for number in numbers]
    for number, device in zip(numbers, devices, strict=True):
        place.put(number, device, users=(f"pod-{number}",))
    service = await place.agent()
    await asyncio.gather(*(service.prepare(reference(number)) for number in numbers))
    sandboxes = [place.sandbox(number, pod=f"pod-{number}") for number in numbers]
    await asyncio.gather(*map(place.interfaces.run, sandboxes))
    assert [place.mover.place(each) for each in devices] == [each.netns for each in sandboxes]
    assert len(place.interfaces.places()) == 50
    await asyncio.gather(*map(place.interfaces.stop, sandboxes))
    assert place.is_home(*devices)


async def test_the_kubelets_record_on_a_disk_that_hangs_keeps_no_other_pod_from_starting(
    place: InterfaceNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.pace = replace(place.pace, reading=0.01)
    await place.prepared()
    gate = threading.Event()

    def hanging(_: Path) -> KubeletClaims:
        assert gate.wait(60)
        return KubeletClaims({})

    monkeypatch.setattr("driver.interfaces.claim_interfaces.read_kubelet_claims", hanging)
    await place.interfaces.run(place.sandbox(2, pod="another"))
    gate.set()
    assert place.is_home()


async def test_a_pods_own_claims_move_while_the_kubelets_record_is_read(
    place: InterfaceNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.prepared()
    moved = threading.Event()
    place.mover.before = lambda call: moved.set() if call == "attached" else None

    def waiting(_: Path) -> KubeletClaims:
        assert moved.wait(60)
        return KubeletClaims({})

    monkeypatch.setattr("driver.interfaces.claim_interfaces.read_kubelet_claims", waiting)
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    assert place.mover.place(NIC1) == sandbox.netns


async def test_the_kernels_means_are_loaded_with_the_first_claim_before_a_pod_waits_for_them(
    place: InterfaceNode,
) -> None:
    await place.agent()
    assert place.movers == 0
    await place.prepared()
    await eventually(lambda: place.movers == 1)


def test_the_deadline_is_before_the_runtimes() -> None:
    assert InterfacePace().deadline < 1.5
