"""State files and podresources against what a real kubelet 1.36 wrote and answered (tests/vectors/kubelet/dra)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf.json_format import MessageToDict

from protos.podresources.v1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import ClaimUse, Container, ExtendedClaim, ExtendedRequest, Pod, PodClaim
from tests.making.recorded_cases import files_in
from tests.sandbox.kubelet.dra.conftest import DraKubeletNode
from tests.sandbox.kubelet.dra.driver import NAME
from tests.waiting import eventually

FOLDER = Path(__file__).parents[3] / "vectors" / "kubelet" / "dra"
STATES = ["one-pod", "several-pods", "one-unhealthy", "extended-resource", "double-advertised"]


def recorded(state: str, what: str) -> Any:
    return json.loads((FOLDER / f"{state}.{what}.json").read_text())


def claims_of(state: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in recorded(state, "resourceclaims")["items"]}


def pods_of(state: str) -> list[Pod]:
    """The pods that podresources listed with claims, as they were."""
    claims = claims_of(state)
    return [_pod(each, claims) for each in recorded(state, "list")["pod_resources"] if _claims_in(each)]


def _claims_in(listed: dict[str, Any]) -> list[str]:
    found = [use["claim_name"] for c in listed["containers"] for use in c.get("dynamic_resources", ())]
    return list(dict.fromkeys(found))


def _pod(listed: dict[str, Any], claims: dict[str, dict[str, Any]]) -> Pod:
    names = _claims_in(listed)
    reserved = claims[names[0]]["status"]["reservedFor"]
    uid = next(each["uid"] for each in reserved if each["name"] == listed["name"])
    containers = listed["containers"]
    if "resource.kubernetes.io/extended-resource-claim" in claims[names[0]]["metadata"]["annotations"]:
        request = ExtendedRequest("c", "ext.example.com/fake", "container-0-request-0")
        alone = (Container("c", limits={"ext.example.com/fake": 1}),)
        return Pod(uid, listed["name"], containers=alone, extended_claim=ExtendedClaim(names[0], (request,)))
    return Pod(
        uid,
        listed["name"],
        containers=tuple(
            Container(
                each["name"], claims=tuple(ClaimUse(use["claim_name"]) for use in each.get("dynamic_resources", ()))
            )
            for each in containers
        ),
        claims=tuple(
            PodClaim(name, name, generated=bool(claims[name]["metadata"].get("ownerReferences"))) for name in names
        ),
    )


async def lister(kubelet: Kubelet, call: str, request: Any) -> Any:
    async with grpc.aio.insecure_channel(f"unix:{kubelet.settings.pod_resources_socket}") as channel:
        answer = await getattr(api_pb2_grpc.PodResourcesListerStub(channel), call)(request)
    return MessageToDict(answer, preserving_proto_field_name=True)


def by_name(listed: Any) -> dict[str, Any]:
    return {each["name"]: each for each in listed["pod_resources"]}


@pytest.mark.parametrize("state", STATES)
async def test_restarted_kubelet_answers_as_the_recorded_one(node: DraKubeletNode, state: str) -> None:
    for file in ("dra_manager_state", "dra_health_state"):
        (node.root / file).write_bytes((FOLDER / f"{state}.{file}.json").read_bytes())
    pods = pods_of(state)
    kubelet = Kubelet(node.root)
    try:
        await kubelet.start(pods=pods)
        listed = await lister(kubelet, "List", api_pb2.ListPodResourcesRequest())
        wanted = by_name(recorded(state, "list"))
        assert by_name(listed) == {name: wanted[name] for name in by_name(listed)}
        assert len(listed["pod_resources"]) == len(pods)
        for path in files_in(FOLDER, f"{state}.get-*.json"):
            name = path.name.split(".")[1].removeprefix("get-")
            request = api_pb2.GetPodResourcesRequest(pod_name=name, pod_namespace="default")
            assert await lister(kubelet, "Get", request) == json.loads(path.read_text())
        assert await lister(kubelet, "GetAllocatableResources", api_pb2.AllocatableResourcesRequest()) == {}
    finally:
        await kubelet.stop()


@pytest.mark.parametrize("state", STATES)
async def test_preparing_the_recorded_pods_writes_the_recorded_file(node: DraKubeletNode, state: str) -> None:
    """dra2 and dra3 start at the same moment, so the claim they share is prepared twice, as it was when recorded."""
    node.api.add(*claims_of(state).values())
    kubelet = await node.kubelet()
    await node.driver()
    await eventually(lambda: any(each.connected for each in kubelet.dra.drivers.instances(NAME)), "the connection")
    pods = pods_of(state)
    await asyncio.gather(*(kubelet.prepare(pod) for pod in pods))
    wanted = {each["ClaimUID"]: each for each in entries(FOLDER / f"{state}.dra_manager_state.json")}
    found = {each["ClaimUID"]: each for each in entries(node.root / "dra_manager_state")}
    assert found == {uid: wanted[uid] for uid in found}
    assert found
    if state == "one-pod":
        assert (node.root / "dra_manager_state").read_bytes() == (
            FOLDER / "one-pod.dra_manager_state.json"
        ).read_bytes()


def entries(path: Path) -> list[Any]:
    found: list[Any] = json.loads(json.loads(path.read_bytes())["Data"])["ClaimInfoStateList"]
    return found


async def test_kubelet_without_a_state_file_makes_one(node: DraKubeletNode) -> None:
    await node.kubelet()
    assert entries(node.root / "dra_manager_state") == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"Data":"x","Checksum":1}', "checkpoint is corrupted"),
        (b"", "unexpected end of JSON input"),
        (b"[]", "json: cannot unmarshal array into Go value of type state.Checkpoint"),
    ],
)
async def test_damaged_state_file_stops_the_kubelet(node: DraKubeletNode, text: bytes, reason: str) -> None:
    (node.root / "dra_manager_state").write_bytes(text)
    with pytest.raises(KubeletError) as raised:
        await node.kubelet()
    assert str(raised.value) == (
        "create ResourceClaim cache: GetOrCreate() on checkpoint state: "
        f"failed to get checkpoint dra_manager_state: {reason}"
    )
