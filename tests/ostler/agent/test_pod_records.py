"""Records of pods from the API server to the kubelet and back: what is read, what is written, what people are told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from driver.resource_api.async_client import AsyncResourceApi
from kube.bodies import Json, JsonObject, object_at, text_at
from node.clocks import SYSTEM
from node.events import EventBus, EventType
from node.ledger.reader import Holding, Reading
from ostler.agent.pod_records import (
    MOST_EVENTS,
    NOT_FOLLOWED,
    NOT_NOTED,
    SWAPPED,
    PodRecords,
    record_of,
    stripped,
)
from ostler.metrics.counters import HoldsMetrics
from plugin.record_annotations import ALLOCATED, DEVICE_NUMBERS, DEVICES, LONGEST, MOST_DEVICES, ids_in, numbers_in
from plugin.record_choice import ContainerSizes
from plugin.records import RecordBook
from protos.podresources.v1 import api_pb2, api_pb2_grpc
from sandbox.apiserver.server import ApiServer
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Container, Pod
from tests.making.events import RecordedEvents
from tests.making.records import GPU, book
from tests.making.resource_api import async_api_of
from tests.making.watched_node import NODE, SOON, TEAM
from tests.ostler.agent.here import agent
from tests.waiting import background, eventually


def body(
    name: str,
    annotations: Mapping[str, str],
    *sizes: int,
    bound: str = "2026-01-01T00:00:00Z",
    phase: str = "Pending",
) -> JsonObject:
    conditions: list[Json] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}] if bound else []
    containers: list[Json] = [
        {"name": f"c{n}", "resources": {"limits": {GPU: str(size)}}} for n, size in enumerate(sizes)
    ]
    return {
        "metadata": {"name": name, "namespace": TEAM, "uid": f"uid-{name}", "annotations": dict(annotations)},
        "spec": {"nodeName": NODE, "containers": containers},
        "status": {"phase": phase, "conditions": conditions},
    }


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0,1,4", (0, 1, 4)),
        ("7", (7,)),
        ("", ()),
        ("0,0", ()),
        ("0,", ()),
        ("00", ()),
        ("-1", ()),
        ("0, 1", ()),
        ("99999", ()),
        ("٣", ()),
        ("0\n", ()),
        (",".join(map(str, range(MOST_DEVICES + 1))), ()),
        ("1" * (LONGEST + 1), ()),
        ("0," * 500_000, ()),
    ],
)
def test_an_annotation_is_read_as_a_whole_or_not_at_all(text: str, numbers: tuple[int, ...]) -> None:
    assert numbers_in(text) == numbers


def test_ids_are_texts_as_devices_have_them() -> None:
    assert ids_in("GPU-a1,MIG-2,0000:3b:00.0") == ("GPU-a1", "MIG-2", "0000:3b:00.0")
    assert ids_in("a b") == ids_in("<x>") == ids_in("a,,b") == ids_in("x" * 254) == ()


def test_a_record_has_what_each_container_of_the_pod_asks_for() -> None:
    pod = body("a", {DEVICE_NUMBERS: "0,1,2", DEVICES: "g0,g1,g2", ALLOCATED: "g0"}, 2, 1)
    object_at(pod, "spec")["initContainers"] = [
        {"resources": {"limits": {GPU: "1"}}},
        {"resources": {"limits": {GPU: "1"}}, "restartPolicy": "Always"},
        {"resources": {"limits": {"cpu": "4", GPU: "0", "a/b": "half", "c/d": 2}}},
    ]
    record = record_of(pod)
    assert record is not None
    assert str(record) == "team/a"
    assert record.sizes == {GPU: ContainerSizes((2, 1, 1), (1,)), "c/d": ContainerSizes((), (2,))}
    assert (record.devices, record.indices, record.allocated) == (("g0", "g1", "g2"), (0, 1, 2), ("g0",))
    assert record_of(stripped(pod)) == record


@pytest.mark.parametrize(
    "pod",
    [
        body("a", {}, 1, phase="Running"),
        body("a", {DEVICE_NUMBERS: "x"}, 1, phase="Running"),
        body("a", {DEVICE_NUMBERS: "0"}, 1, phase="Running", bound=""),
        body("a", {DEVICE_NUMBERS: "0"}, 1, phase="Running", bound="yesterday"),
        body("a", {DEVICE_NUMBERS: "0"}, 1, phase="Failed"),
        body("a", {DEVICE_NUMBERS: "0"}),
        body("a", {DEVICE_NUMBERS: "0"}, *[1] * (MOST_DEVICES + 1)),
        body("A b", {DEVICE_NUMBERS: "0"}, 1),
        {},
        {"metadata": [], "spec": "x", "status": {"conditions": "y"}},
        {"metadata": {"annotations": {DEVICE_NUMBERS: 0}}, "spec": {"containers": {}}},
    ],
    ids=range(11),
)
def test_a_pod_without_a_usable_record_has_none_and_little_of_it_is_kept(pod: JsonObject) -> None:
    assert record_of(pod) is None
    assert stripped(pod).keys() == {"metadata"}
    assert "annotations" not in object_at(stripped(pod), "metadata")


@pytest.mark.parametrize(
    "pod",
    [
        body("a", {}, 1),
        body("a", {DEVICE_NUMBERS: "x"}, 1),
        body("a", {DEVICE_NUMBERS: "0"}, 1, bound=""),
        body("a", {DEVICE_NUMBERS: "0"}, 1, bound="yesterday"),
        body("a", {DEVICES: "g0"}, 1, bound="", phase=""),
    ],
    ids=["none", "unreadable", "not-accepted", "no-time", "new"],
)
def test_a_pod_for_which_nothing_counts_asks_for_devices_until_the_kubelet_has_admitted_it(pod: JsonObject) -> None:
    record = record_of(pod)
    assert record is not None
    assert (record.devices, record.indices, record.sizes) == ((), (), {GPU: ContainerSizes((1,))})
    assert record_of(stripped(pod)) == record
    object_at(pod, "status")["startTime"] = "2026-01-01T00:00:01Z"
    assert record_of(pod) is None


def test_a_resource_that_a_claim_serves_is_not_asked_of_the_plugin() -> None:
    pod = body("a", {DEVICE_NUMBERS: "0"}, 1)
    object_at(pod, "status")["extendedResourceClaimStatus"] = {"requestMappings": [{"resourceName": GPU}]}
    assert record_of(pod) is None


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running_server:
        yield running_server


class _Desk:
    """The part at a stand-in, with a kubelet whose record is written here."""

    def __init__(self, server: ApiServer) -> None:
        self.store = server.store
        self.server = server
        self.book: RecordBook = book()
        self.bus = EventBus()
        self.events = RecordedEvents()
        self.metrics = HoldsMetrics()
        self.given: dict[str, Sequence[str]] = {}
        self.part = self.made()

    def made(self, api: AsyncResourceApi | None = None) -> PodRecords:
        return PodRecords(
            api or async_api_of(self.server),
            NODE,
            self.book,
            bus=self.bus,
            events=self.events,
            outcomes=self.metrics.records,
            clocks=SYSTEM,
            policy=SOON,
        )

    def pod(self, name: str, annotations: Mapping[str, str], size: int, bound: int = 0) -> str:
        """Make a pod that is bound to the node; its UID."""
        made = body(name, annotations, size, bound=f"2026-01-01T00:00:{bound:02}Z")
        metadata = {"name": name, "namespace": TEAM, "annotations": dict(annotations)}
        stored = self.store.create("pods", {"metadata": metadata, "spec": made["spec"]})
        self.store.patch("pods", name, {"status": made["status"]}, namespace=TEAM, part="status")
        return text_at(stored, "metadata", "uid")

    def give(self, uid: str, *ids: str) -> None:
        """The kubelet has given these, and is read."""
        self.given[uid] = ids
        recorded = tuple(Holding(GPU, id_, "c0", uid=uid) for uid, found in self.given.items() for id_ in found)
        self.bus.publish(Reading(0.0, (), recorded, frozenset()))

    def notes(self, name: str) -> JsonObject:
        return object_at(self.store.get("pods", name, namespace=TEAM), "metadata", "annotations")

    async def known(self, count: int) -> None:
        await eventually(lambda: len(self.book.pending(GPU)) == count)


@asynccontextmanager
async def running(desk: _Desk) -> AsyncIterator[_Desk]:
    async with background(desk.part.run()):
        yield desk


@pytest.fixture
async def desk(server: ApiServer) -> AsyncIterator[_Desk]:
    async with running(_Desk(server)) as made:
        yield made


async def test_a_pod_that_got_its_recorded_devices_is_noted_and_nothing_else_is_written(desk: _Desk) -> None:
    uid = desk.pod("a", {DEVICE_NUMBERS: "2,1", "mine": "stays"}, 2)
    await desk.known(1)
    desk.give(uid, "g1", "g2")
    await eventually(lambda: ALLOCATED in desk.notes("a"))
    assert desk.notes("a") == {DEVICE_NUMBERS: "2,1", "mine": "stays", ALLOCATED: "g1,g2"}
    assert desk.metrics.records.counts == {("honoured",): 1, ("swapped",): 0, ("other",): 0}
    assert desk.events.events == []
    pod = desk.store.get("pods", "a", namespace=TEAM)
    assert object_at(pod, "status")["phase"] == "Pending"


async def test_swapped_records_are_written_on_both_pods(desk: _Desk) -> None:
    first = desk.pod("a", {DEVICE_NUMBERS: "0,1", DEVICES: "g0,g1"}, 2, bound=1)
    second = desk.pod("b", {DEVICE_NUMBERS: "2,3"}, 2, bound=2)
    await desk.known(2)
    desk.give(second, "g0", "g1")
    await eventually(lambda: desk.notes("b").get(ALLOCATED) and desk.notes("a")[DEVICE_NUMBERS] == "2,3")
    assert desk.notes("b") == {DEVICE_NUMBERS: "0,1", ALLOCATED: "g0,g1"}
    assert desk.notes("a") == {DEVICE_NUMBERS: "2,3", DEVICES: "g2,g3"}
    desk.give(first, "g2", "g3")
    await eventually(lambda: ALLOCATED in desk.notes("a"))
    assert desk.metrics.records.counts == {("honoured",): 0, ("swapped",): 2, ("other",): 0}
    text = "the kubelet gave pod team/b g0, g1 of nvidia.com/gpu instead of g2, g3: pod team/a now has its record"
    assert desk.events.events == [(EventType.NORMAL, SWAPPED, text)]


async def test_a_pod_with_other_devices_than_recorded_is_mended_and_told_of(desk: _Desk) -> None:
    uid = desk.pod("a", {DEVICE_NUMBERS: "0,1"}, 2)
    await desk.known(1)
    desk.give(uid, "g6", "g7")
    await eventually(lambda: ALLOCATED in desk.notes("a"))
    assert desk.notes("a") == {DEVICE_NUMBERS: "6,7", ALLOCATED: "g6,g7"}
    text = (
        "the kubelet gave pod team/a g6, g7 of nvidia.com/gpu instead of g0, g1: its annotations now name what it has; "
        "the scheduler's own record may differ until the pod ends"
    )
    assert desk.events.events == [(EventType.WARNING, NOT_FOLLOWED, text)]
    assert desk.metrics.records.counts[("other",)] == 1


async def test_what_an_earlier_process_has_noted_is_not_told_again(server: ApiServer) -> None:
    desk = _Desk(server)
    uid = desk.pod("a", {DEVICE_NUMBERS: "6", ALLOCATED: "g6"}, 1)
    desk.give(uid, "g6")
    async with running(desk):
        await eventually(lambda: server.requests.of("watch", "pods"))
        await eventually(lambda: desk.book._pods and not desk.book.pending(GPU))
    assert desk.metrics.records.counts == {("honoured",): 0, ("swapped",): 0, ("other",): 0}
    assert not server.requests.of("patch", "pods")


async def test_a_pod_that_ends_frees_its_record(desk: _Desk) -> None:
    desk.pod("a", {DEVICE_NUMBERS: "0"}, 1)
    desk.pod("b", {DEVICE_NUMBERS: "1"}, 1)
    await desk.known(2)
    desk.store.patch("pods", "a", {"status": {"phase": "Failed"}}, namespace=TEAM, part="status")
    await desk.known(1)
    desk.store.delete("pods", "b", namespace=TEAM, options={"gracePeriodSeconds": 0})
    await desk.known(0)


async def test_many_pods_with_other_devices_cause_few_events(desk: _Desk) -> None:
    uids = [desk.pod(f"p{n}", {DEVICE_NUMBERS: "0"}, 1) for n in range(MOST_EVENTS + 5)]
    await desk.known(len(uids))
    for uid in uids:
        desk.give(uid, "g7")
    assert len(desk.events.of(NOT_FOLLOWED)) == MOST_EVENTS
    assert desk.metrics.records.counts[("other",)] == len(uids)


async def test_without_the_right_to_write_people_are_told_once_and_the_agent_goes_on_trying(server: ApiServer) -> None:
    desk = _Desk(server)
    server.faults.add("patch", status=403, resource="pods", count=-1, message="pods is forbidden")
    async with running(desk):
        uid = desk.pod("a", {DEVICE_NUMBERS: "0"}, 1)
        await desk.known(1)
        desk.give(uid, "g0")
        await eventually(lambda: len(server.requests.of("patch", "pods")) > 2)
        (message,) = desk.events.of(NOT_NOTED)
        assert message.startswith("cannot write pods' devices into their annotations: ")
        assert message.endswith(
            "; let the agent patch pods/status of its node (the chart's recordedDevices.enabled does), or set "
            "kubernetes.recordedDevices to off"
        )
        assert desk.part.reasons() == (message,)
        server.faults.clear()
        await eventually(lambda: ALLOCATED in desk.notes("a"))
        await eventually(lambda: desk.part.reasons() == ())


async def test_pods_of_one_size_that_arrive_in_reversed_order_end_with_annotations_that_tell_the_truth(
    short_dir: Path, server: ApiServer
) -> None:
    """Through a real kubelet's calls: final annotations equal podresources."""
    desk = _Desk(server)
    server.store.create("nodes", {"metadata": {"name": NODE}})
    kubeconfig = str(server.kubeconfig(short_dir / "kubeconfig"))
    served = agent(short_dir, node_name=NODE, kubeconfig=kubeconfig, kubernetes_recorded_devices="on")
    async with Kubelet(short_dir, reconcile_interval=0.05) as kubelet, background(served.run()):
        await kubelet.wait_for(GPU, healthy=8)
        uids = {
            "a": desk.pod("a", {DEVICE_NUMBERS: "0,7"}, 2, bound=1),
            "b": desk.pod("b", {DEVICE_NUMBERS: "3,4"}, 2, bound=2),
            "c": desk.pod("c", {DEVICE_NUMBERS: "1,2,5"}, 3, bound=3),
        }
        records = served._doors._records
        assert records is not None
        await eventually(lambda: len(records.pending(GPU)) == 3)
        given = {}
        for name in ("c", "b", "a"):
            pod = Pod(uids[name], name, TEAM, (Container("c0", limits={GPU: 3 if name == "c" else 2}),))
            assert (await kubelet.admit(pod)).admitted
            await eventually(lambda: ALLOCATED in desk.notes(name))  # noqa: B023
        async with grpc.aio.insecure_channel(f"unix:{short_dir}/pod-resources/kubelet.sock") as channel:
            answer = await api_pb2_grpc.PodResourcesListerStub(channel).List(api_pb2.ListPodResourcesRequest())
        for listed in answer.pod_resources:
            given[listed.name] = {id_ for c in listed.containers for d in c.devices for id_ in d.device_ids}
        numbers = {each.device.uuid: each.device.index for each in served.devices()[1].resources[0].devices}
        for name, ids in given.items():
            notes = desk.notes(name)
            assert set(text_at(notes, ALLOCATED).split(",")) == ids
            assert set(text_at(notes, DEVICE_NUMBERS).split(",")) == {numbers[id_] for id_ in ids}
    assert {name: text_at(desk.notes(name), DEVICE_NUMBERS) for name in given} == {
        "a": "3,4",
        "b": "0,7",
        "c": "1,2,5",
    }
