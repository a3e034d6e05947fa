"""One look at the kubelet: over a real socket, with a real checkpoint, and with all that can be wrong of them."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from node.kubelet.checkpoint import FILE_NAME, Checkpoint, CheckpointEntry, encode
from node.kubelet.podresources import PodResourcesRefused, healthy_ids
from node.ledger.allocations import KubeletAllocations
from node.ledger.holds import HoldState
from node.ledger.pods import NoPodsKnown
from node.ledger.reader import CHECKPOINT, CheckpointFault, Holding, LocalKubelet, read_checkpoint
from node.opening import KUBELET_STATE
from ostler.agent.edges import Edges
from protos.podresources.v1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.pods import Container, Pod
from tests.making.offered_devices import gpu, snapshot
from tests.sandbox.kubelet.conftest import GPU, KubeletNode
from tests.sandbox.kubelet.scripted_plugin import device, devices

FILE = "kubelet_internal_checkpoint"


def test_the_reader_looks_for_the_file_by_the_name_that_it_has() -> None:
    assert CHECKPOINT == FILE_NAME


def _look(root: Path, unix: int | None = None) -> LocalKubelet:
    later = time.time_ns() + 3_600_000_000_000 if unix is None else unix
    return LocalKubelet(root, root / "device-plugins", Edges(lambda: later / 1e9), seconds=1.0)


def _checkpoint(root: Path, *ids: str, name: str = FILE) -> Path:
    folder = root / "device-plugins"
    folder.mkdir(exist_ok=True)
    entries = tuple(CheckpointEntry(f"uid-{id_}", "c", GPU, {-1: (id_,)}, b"") for id_ in ids)
    (folder / name).write_bytes(encode(Checkpoint(entries, {})))
    return folder / name


class Answering(api_pb2_grpc.PodResourcesListerServicer):
    """Answers with ``listed``; refuses methods with ``codes``."""

    def __init__(self) -> None:
        self.listed = api_pb2.ListPodResourcesResponse()
        self.codes: dict[str, tuple[grpc.StatusCode, str]] = {}
        self.lists = 0
        self.refusals = math.inf
        """Lists that ``codes`` is for, from the first on."""

    async def List(
        self,
        request: api_pb2.ListPodResourcesRequest,
        context: grpc.aio.ServicerContext[api_pb2.ListPodResourcesRequest, api_pb2.ListPodResourcesResponse],
    ) -> api_pb2.ListPodResourcesResponse:
        self.lists += 1
        if "List" in self.codes and self.lists <= self.refusals:
            await context.abort(*self.codes["List"])
        return self.listed

    async def GetAllocatableResources(
        self,
        request: api_pb2.AllocatableResourcesRequest,
        context: grpc.aio.ServicerContext[api_pb2.AllocatableResourcesRequest, api_pb2.AllocatableResourcesResponse],
    ) -> api_pb2.AllocatableResourcesResponse:
        if "Allocatable" in self.codes:
            await context.abort(*self.codes["Allocatable"])
        return api_pb2.AllocatableResourcesResponse()


@asynccontextmanager
async def _answering(root: Path) -> AsyncIterator[Answering]:
    (root / "pod-resources").mkdir()
    answering, server = Answering(), grpc.aio.server()
    api_pb2_grpc.add_PodResourcesListerServicer_to_server(answering, server)
    server.add_insecure_port(f"unix:{root}/pod-resources/kubelet.sock")
    await server.start()
    yield answering
    await server.stop(None)


@pytest.fixture
async def node(short_dir: Path) -> AsyncIterator[KubeletNode]:
    node = KubeletNode(short_dir)
    yield node
    await node.close()


async def test_a_live_kubelet_shows_app_containers_and_sidecars_and_records_init_containers_too(
    node: KubeletNode,
) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 4))
    await kubelet.wait_for(GPU, healthy=4)
    before = await _look(node.root).read()
    assert before.whole
    assert before.allocatable == frozenset((GPU, f"d{number}") for number in range(4))
    assert (before.listed, before.recorded, before.faults) == ((), (), ())

    # An app container takes over what an ordinary init container had, so that only one without it shows the difference.
    first = Pod("one", "one", "team", (Container("i", "init", {GPU: 1}), Container("c", "app")))
    second = Pod("two", "two", "team", (Container("s", "sidecar", {GPU: 1}), Container("c", "app", {GPU: 2})))
    for pod in (first, second):
        assert (await kubelet.admit(pod)).admitted
    after = await _look(node.root).read()
    assert after.began > before.began
    assert {(item.pod, item.container) for item in after.listed or ()} == {("team/two", "s"), ("team/two", "c")}
    assert len(after.listed or ()) == 3
    assert {(item.uid, item.container) for item in after.recorded or ()} == {("one", "i"), ("two", "s"), ("two", "c")}
    assert {item.resource for item in (*(after.listed or ()), *(after.recorded or ()))} == {GPU}


async def test_holds_follow_a_live_kubelet_through_the_life_of_a_pod(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    cards = [gpu(number) for number in range(2)]
    await node.plugin([device(card.uuid or "") for card in cards])
    await kubelet.wait_for(GPU, healthy=2)
    holds, look = KubeletAllocations(), _look(node.root)
    holds.place(snapshot(*cards), (GPU,))
    holds.barrier(time.monotonic())

    async def states() -> list[HoldState]:
        holds.read(await look.read(), NoPodsKnown(), 1000.0)
        return sorted(hold.state for hold in holds.wanted().values())

    assert await states() == []
    assert holds.known(time.monotonic())
    assert holds.at_kubelet == {card.name for card in cards}
    pod = Pod("one", "one", "team", (Container("c", "app", {GPU: 2}),))
    assert (await kubelet.admit(pod)).admitted
    assert await states() == [HoldState.LISTED] * 2
    assert {hold.holder for hold in holds.wanted().values()} == {"team/one"}
    kubelet.terminate("one")
    # The file still has the pod, and nobody says that it is gone.
    assert await states() == [HoldState.RECORDED] * 2
    await kubelet.stop()
    assert await states() == [HoldState.RECORDED] * 2


async def test_an_id_of_two_numa_nodes_is_one_holding(short_dir: Path) -> None:
    async with _answering(short_dir) as answering:
        pod = answering.listed.pod_resources.add(name="one", namespace="team")
        container = pod.containers.add(name="c")
        for node in (0, 1):
            container.devices.add(resource_name=GPU, device_ids=["d0"]).topology.nodes.add(ID=node)
        container.devices.add(resource_name=GPU, device_ids=["d1", "d2"])
        reading = await _look(short_dir).read()
    assert reading.listed == tuple(Holding(GPU, id_, "c", pod="team/one") for id_ in ("d0", "d1", "d2"))


async def test_without_a_socket_and_a_folder_nothing_is_known_and_both_are_named(short_dir: Path) -> None:
    reading = await _look(short_dir).read()
    assert (reading.listed, reading.recorded, reading.allocatable) == (None, None, None)
    assert reading.faults == (
        f"{short_dir}/pod-resources/kubelet.sock: UNAVAILABLE: the socket does not exist",
        f"{short_dir}/device-plugins/{FILE}: the folder does not exist",
    )


async def test_a_busy_kubelet_is_a_fault_of_that_question_alone(short_dir: Path) -> None:
    _checkpoint(short_dir, "d0")
    async with _answering(short_dir) as answering:
        answering.codes["Allocatable"] = (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        reading = await _look(short_dir).read()
        assert (reading.listed, reading.allocatable) == ((), None)
        assert reading.recorded == (Holding(GPU, "d0", "c", uid="uid-d0"),)
        assert reading.faults == (
            f"{short_dir}/pod-resources/kubelet.sock: RESOURCE_EXHAUSTED: rejected by rate limit",
        )
        answering.codes["List"] = answering.codes["Allocatable"]
        reading = await _look(short_dir).read()
        assert (reading.listed, reading.allocatable, len(reading.faults)) == (None, None, 1)


async def test_more_than_grpcs_usual_four_mebibytes_are_read(short_dir: Path) -> None:
    _checkpoint(short_dir)
    async with _answering(short_dir) as answering:
        container = answering.listed.pod_resources.add(name="one", namespace="team").containers.add(name="c")
        for number in range(40_000):
            container.devices.add(resource_name=GPU, device_ids=[f"{number:0100d}"])
        assert answering.listed.ByteSize() > 4 << 20
        reading = await _look(short_dir).read()
    assert len(reading.listed or ()) == 40_000


async def test_garbage_on_the_socket_is_a_fault_and_no_more(short_dir: Path) -> None:
    _checkpoint(short_dir)
    (short_dir / "pod-resources").mkdir()

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(os.urandom(4096))
        writer.close()

    server = await asyncio.start_unix_server(babble, short_dir / "pod-resources/kubelet.sock")
    reading = await _look(short_dir).read()
    server.close()
    assert (reading.listed, reading.allocatable, reading.recorded) == (None, None, ())
    assert len(reading.faults) == 1


async def test_messages_that_are_none_are_a_fault(short_dir: Path) -> None:
    (short_dir / "pod-resources").mkdir()

    async def nonsense(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return b"\xff\xff\xff\xff"

    server = grpc.aio.server()
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        name: grpc.unary_unary_rpc_method_handler(nonsense) for name in ("List", "GetAllocatableResources")
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods),))
    server.add_insecure_port(f"unix:{short_dir}/pod-resources/kubelet.sock")
    await server.start()
    reading = await _look(short_dir).read()
    with pytest.raises(PodResourcesRefused, match="is not a message of this API"):
        await healthy_ids(short_dir / "pod-resources/kubelet.sock")
    await server.stop(None)
    assert (reading.listed, reading.allocatable) == (None, None)
    assert reading.faults[0].endswith("kubelet.sock: INTERNAL: the answer is not a message of this API")


async def test_a_kubelet_that_hangs_is_given_up(short_dir: Path) -> None:
    _checkpoint(short_dir)
    (short_dir / "pod-resources").mkdir()
    began = time.monotonic()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(short_dir / "pod-resources/kubelet.sock"))
        silent.listen()
        look = LocalKubelet(short_dir, short_dir / "device-plugins", Edges(), seconds=0.1)
        reading = await look.read()
    assert reading.listed is None
    assert "DEADLINE_EXCEEDED" in reading.faults[0]
    assert time.monotonic() - began < 30


async def test_a_missing_checkpoint_in_a_folder_that_is_there_is_empty(short_dir: Path) -> None:
    (short_dir / "device-plugins").mkdir()
    assert (await _look(short_dir).read()).recorded == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "unexpected end of JSON input"),
        (b"\xff\xfe\x00", "invalid character"),
        (b"[]", "cannot unmarshal array"),
        (b'{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}},"Checksum":1}', "checkpoint is corrupted"),
        (b'{"Data":' + b"[" * 100_000, "depth"),
    ],
)
def test_a_damaged_checkpoint_is_a_fault_with_its_path(tmp_path: Path, text: bytes, why: str) -> None:
    path = tmp_path / FILE
    path.write_bytes(text)
    with pytest.raises(CheckpointFault, match=why) as fault:
        read_checkpoint(path)
    assert str(fault.value).startswith(f"{path}: ")


def test_something_else_in_the_checkpoints_place_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(CheckpointFault, match="it is a folder, not a regular file"):
        read_checkpoint(tmp_path / FILE)


def test_a_checkpoint_without_an_end_is_not_read_to_the_end(tmp_path: Path) -> None:
    with (tmp_path / FILE).open("wb") as file:
        file.truncate(KUBELET_STATE + 2)
    with pytest.raises(CheckpointFault, match=f"the file is {KUBELET_STATE + 2} bytes; the limit is {KUBELET_STATE}"):
        read_checkpoint(tmp_path / FILE)


async def test_a_checkpoint_is_read_again_when_it_was_replaced_and_only_then(short_dir: Path) -> None:
    look = _look(short_dir)
    path = _checkpoint(short_dir, "d0")
    first = (await look.read()).recorded
    assert (await look.read()).recorded is first
    _checkpoint(short_dir, "d1", name="new").rename(path)
    assert [item.id for item in (await look.read()).recorded or ()] == ["d1"]
    path.write_bytes(b"damaged")
    assert (await look.read()).recorded is None
    path.unlink()
    assert (await look.read()).recorded == ()


async def test_a_checkpoint_that_has_just_been_written_is_read_every_time(short_dir: Path) -> None:
    path = _checkpoint(short_dir, "d0")
    look = _look(short_dir, path.stat().st_mtime_ns + 1_000_000_000)
    first = (await look.read()).recorded
    assert (await look.read()).recorded is not first


async def test_a_checkpoint_of_another_kind_than_a_file_does_not_hang(short_dir: Path) -> None:
    (short_dir / "device-plugins").mkdir()
    os.mkfifo(short_dir / "device-plugins" / FILE)
    async with asyncio.timeout(60):
        reading = await _look(short_dir).read()
    assert reading.recorded is None
    assert "it is a FIFO, not a regular file" in reading.faults[-1]


async def test_what_the_kubelet_has_on_record_for_an_app_container_is_found_and_an_init_containers_is_not(
    node: KubeletNode,
) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 3))
    await kubelet.wait_for(GPU, healthy=3)
    first = Pod("one", "one", "team", (Container("i", "init", {GPU: 1}), Container("c", "app")))
    second = Pod("two", "two", "team", (Container("c", "app", {GPU: 1}),))
    for pod in (first, second):
        assert (await kubelet.admit(pod)).admitted
    look = _look(node.root)
    recorded = {item.uid: item.id for item in (await look.read()).recorded or ()}
    ids = {uid: (GPU, id_) for uid, id_ in recorded.items()}
    assert await look.holding([ids["one"]], _gone()) is None
    found = await look.holding(sorted(ids.values()), _gone())
    assert (found and found.pod, found and found.id) == ("team/two", recorded["two"])
    assert await look.holding([("other/gpu", recorded["two"])], _gone()) is None


async def test_pods_are_asked_for_only_where_the_checkpoint_has_the_device_for_one_that_lives(short_dir: Path) -> None:
    _checkpoint(short_dir, "a")
    look = _look(short_dir)
    async with _answering(short_dir) as answering:
        assert await look.holding([(GPU, "b")], _gone()) is None
        assert await look.holding([(GPU, "a")], _gone("uid-a")) is None
        assert answering.lists == 0
        assert await look.holding([(GPU, "a")], _gone()) is None
        assert answering.lists == 1


async def test_a_kubelet_that_has_too_many_questions_is_asked_again(short_dir: Path) -> None:
    _checkpoint(short_dir, "a")
    async with _answering(short_dir) as answering:
        answering.codes["List"] = (grpc.StatusCode.RESOURCE_EXHAUSTED, "too many")
        answering.refusals = 2
        pod = answering.listed.pod_resources.add(name="pod", namespace="team")
        pod.containers.add(name="c").devices.add(resource_name=GPU, device_ids=["a"])
        found = await _look(short_dir).holding([(GPU, "a")], _gone())
        assert (found and found.pod, answering.lists) == ("team/pod", 3)


async def test_nothing_is_known_of_a_device_while_the_kubelet_cannot_be_asked_and_that_is_told(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _checkpoint(short_dir, "a")
    look = _look(short_dir)
    assert await look.holding([(GPU, "a")], _gone()) is None
    async with _answering(short_dir) as answering:
        answering.codes["List"] = (grpc.StatusCode.RESOURCE_EXHAUSTED, "too many")
        assert await look.holding([(GPU, "a")], _gone()) is None
    (short_dir / "device-plugins" / FILE).write_bytes(b"garbage")
    assert await look.holding([(GPU, "a")], _gone()) is None
    # Other loggers may report what an earlier test has left behind.
    ours = [record.getMessage() for record in caplog.records if record.name == "ostler.holds"]
    assert ours == ["cannot tell whether another pod has the requested devices"] * 3


def test_a_kubelet_that_has_allocated_nothing_yet_has_no_records(short_dir: Path) -> None:
    look = _look(short_dir)
    assert not look.has_records
    _checkpoint(short_dir, "a")
    assert look.has_records


def _gone(*uids: str) -> Callable[[str], bool]:
    return uids.__contains__
