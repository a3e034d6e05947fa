"""Claims are prepared before a pod starts and unprepared after its end, with a kubelet's words for what goes wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.kubelet.dra.manager import PrepareError, UnprepareError
from sandbox.kubelet.errors import ContainerStartError
from sandbox.kubelet.events import PluginCallFailed, PluginCallPending, PodWarning
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import ClaimUse, Container, ExtendedClaim, ExtendedRequest, Pod, PodClaim
from tests.sandbox.kubelet.dra.conftest import DraKubeletNode, claim, pod, uses
from tests.sandbox.kubelet.dra.driver import NAME, DriverScript, FakeDriver
from tests.waiting import eventually


async def started(
    node: DraKubeletNode, script: DriverScript | None = None, **dra: object
) -> tuple[Kubelet, FakeDriver]:
    """A kubelet, and a driver that is connected."""
    kubelet = await node.kubelet(dra)
    driver = await node.driver(script=script)
    await connected(kubelet)
    return kubelet, driver


async def connected(kubelet: Kubelet, name: str = NAME) -> None:
    await eventually(lambda: any(each.connected for each in kubelet.dra.drivers.instances(name)), "the connection")


async def refusal(kubelet: Kubelet, wanted: Pod) -> str:
    with pytest.raises(PrepareError) as raised:
        await kubelet.prepare(wanted)
    text = str(raised.value)
    assert text.startswith("prepare dynamic resources: ")
    return text.removeprefix("prepare dynamic resources: ")


async def test_all_claims_of_a_pod_are_one_call(node: DraKubeletNode) -> None:
    kubelet, driver = await started(node)
    node.api.add(claim("one"), claim("two", devices=[("r", "dev-1"), ("s", "dev-2")]))
    running = pod(
        "p",
        "one",
        "two",
        containers=[
            Container("a", claims=uses("one", "two")),
            Container("b", claims=uses("two/s")),
            Container("d", claims=uses("two/nothing")),
            Container("e"),
        ],
    )
    await kubelet.prepare(running)
    assert driver.calls == [("v1", "prepare", ("one", "two"))]
    assert kubelet.claim_devices(running, "a") == tuple(
        f"{NAME}/fake=uid-{each}" for each in ("one-dev-0", "two-dev-1", "two-dev-2")
    )
    assert kubelet.claim_devices(running, "b") == (f"{NAME}/fake=uid-two-dev-2",)
    assert kubelet.claim_devices(running, "d") == kubelet.claim_devices(running, "e") == ()


async def test_failed_call_of_a_driver_says_which_and_what_to_look_at(node: DraKubeletNode) -> None:
    kubelet, _ = await started(node, DriverScript(fail="on fire"))
    node.api.add(claim("one"))
    failed: list[PluginCallFailed] = []
    kubelet.on_event(lambda event: failed.append(event) if isinstance(event, PluginCallFailed) else None)
    await refusal(kubelet, pod("p", "one"))
    (event,) = failed
    assert event.error == "rpc error: code = Internal desc = on fire"
    assert (event.fault.resource, event.fault.call) == (NAME, "NodePrepareResources")
    assert event.fault.advice.startswith("the plugin refused the call; see the log of process ")


async def test_hanging_driver_is_reported_while_its_pod_waits(node: DraKubeletNode) -> None:
    kubelet, _ = await started(node, DriverScript(hang=True), call_seconds=0.5, pending_seconds=0.05)
    node.api.add(claim("one"))
    waiting: list[PluginCallPending] = []
    kubelet.on_event(lambda event: waiting.append(event) if isinstance(event, PluginCallPending) else None)
    await refusal(kubelet, pod("p", "one"))
    (event,) = waiting
    assert event.fault.call == "NodePrepareResources"
    assert event.fault.advice.endswith(" waits for; its pod waits, for up to 0.5 s")


async def test_prepared_claims_are_not_prepared_again_until_a_restart(node: DraKubeletNode) -> None:
    kubelet, driver = await started(node)
    node.api.add(claim("one"))
    running = pod("p", "one")
    await kubelet.prepare(running)
    await kubelet.prepare(running)
    assert len(driver.calls) == 1
    await kubelet.restart()
    await connected(kubelet)
    await kubelet.prepare(running)
    assert len(driver.calls) == 2
    # Recorded before and after the restart, as in kubelets.
    assert kubelet.claim_devices(running, "c") == (f"{NAME}/fake=uid-one-dev-0",) * 2


async def test_shared_claim_is_unprepared_with_its_last_pod(node: DraKubeletNode) -> None:
    kubelet, driver = await started(node)
    node.api.add(claim("shared", pods=("p", "q")))
    first, second = pod("p", "shared"), pod("q", "shared")
    for each in (first, second):
        assert (await kubelet.admit(each)).admitted
        await kubelet.prepare(each)
    await kubelet.end(first)
    assert [call for _, call, _ in driver.calls] == ["prepare"]
    await kubelet.end(second)
    assert [call for _, call, _ in driver.calls] == ["prepare", "unprepare"]
    await kubelet.end(second)
    assert len(driver.calls) == 2


async def test_each_driver_of_a_claim_is_asked(node: DraKubeletNode) -> None:
    kubelet, driver = await started(node)
    other = await node.driver(name="other.example.com")
    await connected(kubelet, "other.example.com")
    node.api.add(claim("one", drivers=(NAME, "other.example.com")))
    running = pod("p", "one")
    await kubelet.prepare(running)
    await kubelet.end(running)
    assert [call[1] for call in driver.calls] == [call[1] for call in other.calls] == ["prepare", "unprepare"]


async def test_claims_that_cannot_be_used_are_refused_before_any_call(node: DraKubeletNode) -> None:
    kubelet, driver = await started(node)
    unallocated = claim("new")
    del unallocated["status"]["allocation"]
    node.api.add(claim("ours", pods=("q",)), claim("made", owner="q"), claim("far", drivers=("no.example.com",)))
    node.api.add(unallocated)
    generated = Pod("p", "p", claims=(PodClaim("g", "made", generated=True),))
    assert [
        await refusal(kubelet, pod("p", "gone")),
        await refusal(kubelet, pod("p", "ours")),
        await refusal(kubelet, generated),
        await refusal(kubelet, pod("p", "far")),
        await refusal(kubelet, pod("p", "new")),
        await refusal(kubelet, Pod("p", "p", claims=(PodClaim("g", ""),))),
    ] == [
        'fetch ResourceClaim gone: resourceclaims.resource.k8s.io "gone" not found',
        "pod p (p) is not allowed to use ResourceClaim ours (uid-ours)",
        "ResourceClaim default/made was not created for Pod default/p (Pod is not owner)",
        "DRA driver no.example.com is not registered",
        "ResourceClaim new: not allocated",
        'pod "default/p": ResourceClaim not created yet',
    ]
    assert (driver.calls, kubelet.dra.claims.all()) == ([], ())
    messages = [event for event in node.events if isinstance(event, PodWarning)]
    assert messages[0] == PodWarning(
        "p",
        "FailedPrepareDynamicResources",
        "Failed to prepare dynamic resources: prepare dynamic resources: fetch ResourceClaim gone: "
        'resourceclaims.resource.k8s.io "gone" not found',
    )
    await kubelet.prepare(Pod("p", "p", claims=(PodClaim("g", None),)))


@pytest.mark.parametrize(
    ("script", "error", "kept"),
    [
        (DriverScript(fail="on fire"), "NAME: rpc error: code = Internal desc = on fire", True),
        (DriverScript(errors={"one": "too hot"}), "NAME failed for ResourceClaim one: too hot", True),
        (DriverScript(skip=("one",)), "NAME skipped 1 ResourceClaims", True),
        (DriverScript(skip=("one",), unknown="u"), "NAME returned result for unknown claim UID u", True),
    ],
)
async def test_drivers_failure_is_told_and_the_claim_asked_for_again(
    node: DraKubeletNode, script: DriverScript, error: str, kept: bool
) -> None:
    kubelet, driver = await started(node, script)
    node.api.add(claim("one"))
    running = pod("p", "one")
    assert (await kubelet.admit(running)).admitted
    assert await refusal(kubelet, running) == error.replace("NAME", "NodePrepareResources")
    with pytest.raises(UnprepareError) as raised:
        await kubelet.end(running)
    assert str(raised.value) == f"unprepare dynamic resources: {error.replace('NAME', 'NodeUnprepareResources')}"
    assert kubelet.pods() == (running,)
    driver.script = DriverScript(devices=node.devices())
    await kubelet.prepare(running)
    assert kubelet.claim_devices(running, "c") == (f"{NAME}/fake=uid-one-dev-0",)
    await kubelet.end(running)
    assert (kubelet.pods(), kubelet.dra.claims.all()) == ((), ())


async def test_driver_that_hangs_is_given_up_after_its_deadline(node: DraKubeletNode) -> None:
    kubelet, _ = await started(node, DriverScript(hang=True), call_seconds=0.1)
    node.api.add(claim("one"))
    text = await refusal(kubelet, pod("p", "one"))
    assert text.startswith("NodePrepareResources: rpc error: code = DeadlineExceeded desc = ")


async def test_new_claim_of_an_old_name_waits_for_the_old_ones_end(node: DraKubeletNode) -> None:
    kubelet, _ = await started(node)
    node.api.add(claim("one", uid="old"))
    before = pod("p", "one")
    await kubelet.prepare(before)
    node.api.add(claim("one", uid="new", pods=("q",)))
    assert await refusal(kubelet, pod("q", "one")) == (
        "old ResourceClaim with same name one and different UID old still exists (previous pod force-deleted?!)"
    )
    await kubelet.end(before)
    await kubelet.prepare(pod("q", "one"))


async def test_pods_that_vanished_are_unprepared_by_and_by(node: DraKubeletNode) -> None:
    kubelet, driver = await started(node, None, reconcile_seconds=0.05)
    node.api.add(claim("one"))
    running = pod("p", "one")
    assert (await kubelet.admit(running)).admitted
    await kubelet.prepare(running)
    kubelet.terminate("p")
    await eventually(lambda: kubelet.dra.claims.all() == (), "the release")
    assert [call for _, call, _ in driver.calls] == ["prepare", "unprepare"]


@pytest.mark.parametrize(("generation", "released"), [("1.36", True), ("1.37", False)])
async def test_pod_that_never_had_the_claim_releases_it_up_to_1_36(
    node: DraKubeletNode, generation: Generation, released: bool
) -> None:
    """A quirk that drivers live with: only the number of pods is looked at."""
    kubelet = await node.kubelet(generation=generation)
    driver = await node.driver()
    await connected(kubelet)
    node.api.add(claim("shared", pods=("p",)))
    await kubelet.prepare(pod("p", "shared"))
    await kubelet.end(pod("q", "shared"))
    assert ([call for _, call, _ in driver.calls] == ["prepare", "unprepare"]) is released


async def test_extended_resources_are_served_by_their_claim(node: DraKubeletNode) -> None:
    kubelet, _ = await started(node)
    devices = [("container-0-request-0", "dev-0"), ("container-1-request-0", "dev-1")]
    node.api.add(claim("ext", devices=devices))
    resource = "ext.example.com/fake"
    extended = ExtendedClaim(
        "ext",
        tuple(ExtendedRequest(name, resource, f"container-{index}-request-0") for index, name in enumerate(("a", "b"))),
    )
    containers = (Container("a", limits={resource: 1}), Container("b", limits={resource: 1}), Container("d"))
    running = Pod("p", "p", containers=containers, extended_claim=extended)
    assert (await kubelet.admit(running)).admitted
    await kubelet.prepare(running)
    found = [kubelet.claim_devices(running, name) for name in ("a", "b", "d")]
    assert found == [(f"{NAME}/fake=uid-ext-dev-0",), (f"{NAME}/fake=uid-ext-dev-1",), ()]


async def test_container_does_not_start_before_its_claim_is_known(node: DraKubeletNode) -> None:
    kubelet, _ = await started(node)
    with pytest.raises(ContainerStartError) as raised:
        kubelet.claim_devices(pod("p", "one"), "c")
    assert str(raised.value) == ("internal error: unable to get claim info for ResourceClaim one in namespace default")


async def test_share_ids_are_kept(node: DraKubeletNode) -> None:
    kubelet, _ = await started(node)
    shared = claim("one")
    shared["status"]["allocation"]["devices"]["results"][0]["shareID"] = "s1"
    node.api.add(shared)
    await kubelet.prepare(pod("p", "one"))
    (known,) = kubelet.dra.claims.all()
    assert [device.share_id for device in known.drivers[NAME]] == ["s1"]


async def test_kubelet_without_an_api_server_prepares_nothing(node: DraKubeletNode) -> None:
    kubelet, _ = await started(node, None, api=None)
    assert await refusal(kubelet, pod("p", "one")) == (
        "fetch ResourceClaim one: the kubelet runs without an API server"
    )


async def test_uses_without_a_claim_of_the_pod_give_nothing(node: DraKubeletNode) -> None:
    kubelet, _ = await started(node)
    unrelated = replace(pod("p"), containers=(Container("c", claims=(ClaimUse("other"),)),))
    assert kubelet.claim_devices(unrelated, "c") == ()


async def test_owner_that_does_not_control_a_generated_claim_is_not_its_pod(node: DraKubeletNode) -> None:
    kubelet, driver = await started(node)
    made = claim("made", owner="p")
    made["metadata"]["ownerReferences"][0]["controller"] = False
    node.api.add(made)
    generated = Pod("p", "p", claims=(PodClaim("g", "made", generated=True),))
    assert await refusal(kubelet, generated) == (
        "ResourceClaim default/made was not created for Pod default/p (Pod is not owner)"
    )
    assert driver.calls == []
