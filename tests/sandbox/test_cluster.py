"""Claims on their way: made, allocated, reserved, prepared, injected and released."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.cluster.cluster import UnknownKind
from sandbox.cluster.manifests import ManifestError
from sandbox.kubelet.dra.settings import ApiFailed
from sandbox.kubelet.events import PodWarning
from tests.sandbox.conftest import DRIVER, NODE, PLUGIN, StartedBox, claim, pod, request, template
from tests.sandbox.kubelet.dra.driver import DriverScript
from tests.waiting import eventually


async def test_pod_with_a_claim_from_a_template_runs_and_is_released(box: StartedBox) -> None:
    box.publish(2)
    (outcome,) = await box.cluster.apply([template("one"), pod("p", gpu="template/one")])
    assert (outcome.phase, outcome.message) == ("Running", "")
    ((name, made),) = box.claims().items()
    assert name.startswith("p-gpu-")
    assert made["metadata"]["labels"] == {"from": "one"}
    assert made["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert outcome.claims == {name: (f"{DRIVER}/{NODE}/gpu-0",)}
    uid = made["metadata"]["uid"]
    assert outcome.containers == {
        "main": {
            "cdiDevices": [f"{DRIVER}/claim={uid}-gpu-0"],
            "injected": {"env": [f"CLAIM={name}"], "deviceNodes": [{"path": "/dev/gpu-0"}]},
        }
    }
    assert box.server.store.get("pods", "p")["spec"]["nodeName"] == NODE
    await box.cluster.end("p")
    assert box.claims() == {}
    assert box.server.store.list("pods") == []
    assert [call for _, call, _ in box.driver.calls] == ["prepare", "unprepare"]


async def test_two_pods_share_a_claim_and_the_last_one_frees_it(box: StartedBox) -> None:
    box.publish(1)
    await box.cluster.apply([claim("shared")])
    first = await box.cluster.run(pod("p", gpu="claim/shared"))
    second = await box.cluster.run(pod("q", gpu="claim/shared"))
    assert (first.running, second.running) == (True, True)
    assert first.containers == second.containers
    await box.cluster.end("p")
    assert [each["name"] for each in box.claims()["shared"]["status"]["reservedFor"]] == ["q"]
    await box.cluster.end("q")
    assert "allocation" not in box.claims()["shared"].get("status", {})
    again = await box.cluster.run(pod("r", gpu="claim/shared"))
    assert again.running


async def test_containers_get_the_requests_they_name(box: StartedBox) -> None:
    box.publish(4)
    own: list[dict[str, Any]] = [
        {"name": "a", "image": "i", "resources": {"claims": [{"name": "g", "request": "x"}]}},
        {"name": "b", "image": "i", "resources": {"claims": [{"name": "g", "request": "y"}]}},
        {"name": "c", "image": "i"},
    ]
    await box.cluster.apply([claim("two", request("x"), request("y", 2))])
    outcome = await box.cluster.run(pod("p", containers=own, g="claim/two"))
    nodes = {
        name: [each["path"] for each in seen["injected"]["deviceNodes"]] if seen else []
        for name, seen in outcome.containers.items()
    }
    assert nodes == {"a": ["/dev/gpu-0"], "b": ["/dev/gpu-1", "/dev/gpu-2"], "c": []}


async def test_constraints_are_the_allocators(box: StartedBox) -> None:
    box.publish(4)
    constraint = {"matchAttribute": f"{DRIVER}/pair"}
    await box.cluster.apply([claim("single"), claim("pair", request(count=2), constraints=[constraint])])
    await box.cluster.run(pod("p", g="claim/single"))
    outcome = await box.cluster.run(pod("q", g="claim/pair"))
    assert outcome.claims == {"pair": (f"{DRIVER}/{NODE}/gpu-2", f"{DRIVER}/{NODE}/gpu-3")}


async def test_pod_waits_while_nothing_is_free(box: StartedBox) -> None:
    box.publish(1)
    await box.cluster.apply([template("one"), pod("p", g="template/one")])
    waiting = await box.cluster.run(pod("q", g="template/one"))
    assert (waiting.phase, waiting.message) == ("Pending", "0/1 nodes are available: 1 cannot allocate all claims")
    await box.cluster.end("p")
    assert (await box.cluster.retry("q")).running
    assert len(box.claims()) == 1


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (pod("p", g="claim/gone"), '0/1 nodes are available: 1 resourceclaim "gone" not found'),
        (
            pod("p", g="template/gone"),
            '0/1 nodes are available: 1 resourceclaimtemplates.resource.k8s.io "gone" not found',
        ),
        (
            pod("p", g="claim/strange"),
            (
                "0/1 nodes are available: ResourceClaim default/strange: "
                'spec.devices.requests[0].exactly.deviceClassName: there is no DeviceClass "strange"'
            ),
        ),
    ],
)
async def test_pod_whose_claims_cannot_be_is_told_why(
    box: StartedBox, manifest: dict[str, object], message: str
) -> None:
    strange = claim("strange", {"name": "r", "exactly": {"deviceClassName": "strange"}})
    await box.cluster.apply([strange])
    outcome = await box.cluster.run(manifest)
    assert (outcome.phase, outcome.message) == ("Pending", message)


async def test_drivers_error_is_the_pods_and_goes_with_its_cause(box: StartedBox) -> None:
    box.publish(1)
    good = box.driver.script
    box.driver.script = DriverScript(errors={"one": "device gpu-0 is too hot"})
    await box.cluster.apply([claim("one")])
    heard: list[object] = []
    box.kubelet.on_event(heard.append)
    outcome = await box.cluster.run(pod("p", g="claim/one"))
    assert (outcome.phase, outcome.message) == (
        "Pending",
        "prepare dynamic resources: NodePrepareResources failed for ResourceClaim one: device gpu-0 is too hot",
    )
    assert len([event for event in heard if isinstance(event, PodWarning)]) == 1
    box.driver.script = good
    assert (await box.cluster.retry("p")).running


async def test_plugin_and_claim_serve_one_container(box: StartedBox) -> None:
    box.publish(1)
    await box.plugin(2)
    resources = {"limits": {PLUGIN: 1, "cpu": "100m"}, "claims": [{"name": "g"}]}
    await box.cluster.apply([claim("one")])
    own = [{"name": "main", "image": "i", "resources": resources}]
    outcome = await box.cluster.run(pod("p", containers=own, g="claim/one"))
    # The scripted plugin names CDI devices that no file defines.
    assert outcome.message == "CDI device injection failed: unresolvable CDI devices v.example/gpu=d0"
    spec = '{"kind": "v.example/gpu", "devices": [{"name": "d0", "containerEdits": {"env": ["D=0"]}}]}'
    (box.cdi / "v.json").write_text(spec)
    outcome = await box.cluster.retry("p")
    seen = outcome.containers["main"]
    assert seen["deviceIDs"] == {PLUGIN: ["d0"]}
    assert seen["envs"] == {"IDS_gpu": "d0"}
    assert seen["injected"]["env"] == ["CLAIM=one", "D=0"]
    (box.cdi / "v.json").write_text(spec.replace("D=0", "IDS_gpu=void"))
    seen = (await box.cluster.retry("p")).containers["main"]
    assert "envs" not in seen
    assert seen["injected"]["env"] == ["CLAIM=one", "IDS_gpu=void"]


async def test_refused_pod_is_told(box: StartedBox) -> None:
    await box.plugin(1)
    own = [{"name": "main", "image": "i", "resources": {"limits": {PLUGIN: 2}}}]
    outcome = await box.cluster.run(pod("p", containers=own))
    assert outcome.phase == "Failed"
    assert "Requested: 2, Available: 1" in outcome.message


async def test_extended_resource_is_served_by_a_class(box: StartedBox) -> None:
    box.publish(3)
    own = [
        {"name": "a", "image": "i", "resources": {"limits": {"example.com/gpu": 2}}},
        {"name": "b", "image": "i", "resources": {"limits": {f"deviceclass.resource.kubernetes.io/gpu.{DRIVER}": "1"}}},
    ]
    box.server.store.patch("deviceclasses", f"gpu.{DRIVER}", {"spec": {"extendedResourceName": "example.com/gpu"}})
    outcome = await box.cluster.run(pod("p", containers=own))
    assert outcome.running, outcome.message
    nodes = {
        name: [each["path"] for each in seen["injected"]["deviceNodes"]] for name, seen in outcome.containers.items()
    }
    assert nodes == {"a": ["/dev/gpu-0", "/dev/gpu-1"], "b": ["/dev/gpu-2"]}
    status = box.server.store.get("pods", "p")["status"]["extendedResourceClaimStatus"]
    assert [each["requestName"] for each in status["requestMappings"]] == [
        "container-0-request-0",
        "container-1-request-0",
    ]
    await box.cluster.end("p")
    assert box.claims() == {}


async def test_no_execute_taint_evicts_those_who_do_not_tolerate_it(box: StartedBox) -> None:
    box.publish(3)
    any_effect = {"key": "hot", "operator": "Exists"}
    toleration = {**any_effect, "effect": "NoExecute"}
    await box.cluster.apply([claim("frail", request(tolerations=[any_effect]))])
    await box.cluster.apply([claim("tough", request(tolerations=[toleration])), claim("other")])
    for name in ("frail", "tough", "other"):
        assert (await box.cluster.run(pod(name, g=f"claim/{name}"))).running
    taint = {"key": "hot", "value": "very", "effect": "NoExecute"}
    box.publish(3, taints={0: [taint], 1: [taint]})
    assert await box.cluster.evict() == {
        ("default", "frail"): f"device {DRIVER}/{NODE}/gpu-0 of claim frail has the taint hot=very:NoExecute"
    }
    assert [each.name for each in box.cluster.pods()] == ["tough", "other"]
    assert await box.cluster.evict() == {}


async def test_taint_rule_evicts_and_keeps_away(box: StartedBox) -> None:
    box.publish(2)
    await box.cluster.apply([template("one"), pod("p", g="template/one"), pod("q", g="template/one")])
    rule = {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "repair"},
        "spec": {
            "deviceSelector": {"driver": DRIVER, "device": "gpu-0"},
            "taint": {"key": "repair", "effect": "NoExecute"},
        },
    }
    await box.cluster.apply([rule])
    assert list(await box.cluster.evict()) == [("default", "p")]
    outcome = await box.cluster.run(pod("r", g="template/one"))
    assert outcome.phase == "Pending"
    box.server.store.delete("devicetaintrules", "repair")
    assert (await box.cluster.retry("r")).running


async def test_tainted_device_is_given_to_nobody(box: StartedBox) -> None:
    box.publish(2, taints={0: [{"key": "hot", "effect": "NoSchedule"}]})
    await box.cluster.apply([claim("one")])
    outcome = await box.cluster.run(pod("p", g="claim/one"))
    assert outcome.claims == {"one": (f"{DRIVER}/{NODE}/gpu-1",)}


async def test_restarted_kubelet_wipes_the_slices(box: StartedBox) -> None:
    box.publish(1)
    assert len(await box.cluster.slices(DRIVER)) == 1
    await box.kubelet.restart()
    await eventually(lambda: box.server.store.list("resourceslices") == [], "the wipe")


async def test_server_that_is_down_is_told(box: StartedBox) -> None:
    box.server.down()
    with pytest.raises(ApiFailed, match="does not answer"):
        await box.cluster.run(pod("p"))


async def test_unknown_kind_is_told_with_the_known_ones(box: StartedBox) -> None:
    with pytest.raises(UnknownKind) as raised:
        await box.cluster.apply([{"kind": "Deployment"}])
    assert str(raised.value) == (
        "kind 'Deployment' is not served here; must be one of DeviceClass, DeviceTaintRule, Namespace, Node, Pod, "
        "ResourceClaim, ResourceClaimTemplate"
    )


async def test_amount_that_is_no_number_is_told(box: StartedBox) -> None:
    own = [{"name": "main", "image": "i", "resources": {"limits": {PLUGIN: "half"}}}]
    with pytest.raises(ManifestError, match=f"container main: {PLUGIN}: "):
        await box.cluster.run(pod("p", containers=own))
