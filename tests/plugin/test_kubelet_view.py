"""The kubelet's pod resources API, asked when there is reason to: one question for all resources, and not too often."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from node.clocks import SYSTEM, SystemClocks
from node.events import EventBus
from node.kubelet.podresources import PodResourcesRefused, healthy_ids, ids_by_resource, socket_below
from plugin.kubelet import KubeletAnswered, KubeletView, QuestionPace
from protos.podresources.v1 import api_pb2, api_pb2_grpc
from tests.waiting import background, eventually

PACE = QuestionPace(every=3600.0)


class _Kubelet(api_pb2_grpc.PodResourcesListerServicer):
    """Answers with ``entries`` or refuses with ``code``, and counts the questions."""

    def __init__(self) -> None:
        self.asked = 0
        self.code: grpc.StatusCode | None = None
        self.entries: list[tuple[str, str, int | None]] = []

    async def GetAllocatableResources(
        self,
        request: api_pb2.AllocatableResourcesRequest,
        context: grpc.aio.ServicerContext[api_pb2.AllocatableResourcesRequest, api_pb2.AllocatableResourcesResponse],
    ) -> api_pb2.AllocatableResourcesResponse:
        self.asked += 1
        if self.code is not None:
            await context.abort(self.code, "rejected by rate limit")
        return answer_of(*self.entries)


def answer_of(*entries: tuple[str, str, int | None]) -> api_pb2.AllocatableResourcesResponse:
    answer = api_pb2.AllocatableResourcesResponse()
    for resource, id_, node in entries:
        entry = answer.devices.add(resource_name=resource, device_ids=[id_])
        if node is not None:
            entry.topology.nodes.add(ID=node)
    return answer


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[_Kubelet]:
    kubelet, server = _Kubelet(), grpc.aio.server()
    api_pb2_grpc.add_PodResourcesListerServicer_to_server(kubelet, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    yield kubelet
    await server.stop(None)


def telling(told: list[int]) -> EventBus:
    """A bus that counts the kubelet's answers in ``told``."""
    bus = EventBus()
    bus.subscribe(KubeletAnswered, lambda _: told.append(1))
    return bus


@asynccontextmanager
async def viewing(path: Path, pace: QuestionPace = PACE) -> AsyncIterator[tuple[KubeletView, list[int]]]:
    told: list[int] = []
    view = KubeletView(path, telling(told), clocks=SYSTEM, pace=pace)
    async with background(view.run()):
        yield view, told


def test_a_device_of_several_nodes_is_one_device() -> None:
    answer = answer_of(("a.b/c", "d0", 0), ("a.b/c", "d0", 1), ("a.b/c", "d1", None), ("a.b/e", "d0", 0))
    assert ids_by_resource(answer) == {"a.b/c": {"d0", "d1"}, "a.b/e": {"d0"}}


def test_the_socket_follows_the_kubelets_root() -> None:
    assert socket_below(Path("/var/lib/k0s/kubelet")) == Path("/var/lib/k0s/kubelet/pod-resources/kubelet.sock")


async def test_a_refusal_says_where_and_why(short_dir: Path) -> None:
    path = short_dir / "kubelet.sock"
    async with serving(path) as kubelet:
        kubelet.code = grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(PodResourcesRefused, match=r"kubelet\.sock: RESOURCE_EXHAUSTED: rejected") as refused:
            await healthy_ids(path)
        assert refused.value.passing
        kubelet.code = grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(PodResourcesRefused) as refused:
            await healthy_ids(path)
        assert not refused.value.passing


async def test_nothing_is_asked_before_somebody_wants_it(short_dir: Path) -> None:
    path = short_dir / "kubelet.sock"
    async with serving(path) as kubelet:
        kubelet.entries = [("a.b/c", "d0", 0)]
        async with viewing(path) as (view, told):
            await asyncio.sleep(0)
            assert kubelet.asked == 0
            # Several who want it get one answer.
            view.want(0.02)
            view.want(0.01)
            view.want(5)
            await eventually(lambda: told)
            assert view.answer is not None
            assert view.answer.ids == {"a.b/c": {"d0"}}
            assert (kubelet.asked, len(told)) == (1, 1)


async def test_it_is_asked_again_after_a_while_without_any_reason(short_dir: Path) -> None:
    path = short_dir / "kubelet.sock"
    async with serving(path) as kubelet, viewing(path, QuestionPace(every=0.01)) as (view, _):
        view.want(0)
        await eventually(lambda: kubelet.asked >= 3)


async def test_a_refused_question_is_repeated_sooner_and_says_nothing_meanwhile(short_dir: Path) -> None:
    path, now, told = short_dir / "kubelet.sock", 1000.0, list[int]()
    view = KubeletView(path, telling(told), clocks=SystemClocks(monotonic=lambda: now), pace=PACE)
    async with serving(path) as kubelet, background(view.run()):
        view.want(0)
        await eventually(lambda: told)
        kubelet.code = grpc.StatusCode.RESOURCE_EXHAUSTED
        view.want(0)
        await eventually(lambda: view._wanted == now + PACE.every / 12, "the refusal")
        assert (kubelet.asked, view.answer) == (2, None)
        kubelet.code = None
        now += PACE.every / 12
        view.want_after(60)  # Wakes the view, which sleeps by another clock.
        await eventually(lambda: len(told) == 2)


async def test_a_question_for_later_is_asked_whatever_was_answered_before(short_dir: Path) -> None:
    path, now, told = short_dir / "kubelet.sock", 1000.0, list[int]()
    view = KubeletView(path, telling(told), clocks=SystemClocks(monotonic=lambda: now), pace=PACE)
    async with serving(path) as kubelet, background(view.run()):
        for seconds in (5.0, 5.04, 60.0):
            view.want_after(seconds)
        view.want(0)
        await eventually(lambda: told)
        now += 5
        view.want_after(60)  # Wakes the view, which sleeps by another clock.
        await eventually(lambda: len(told) == 2)
        assert kubelet.asked == 2, "two questions of the same moment are one"
        assert view.answer is not None
        assert view.answer.asked_at == now


async def test_where_there_is_no_socket_nothing_is_known(short_dir: Path) -> None:
    async with viewing(short_dir / "kubelet.sock", QuestionPace(every=0.01)) as (view, told):
        view.want(0)
        async with serving(short_dir / "kubelet.sock"):
            await eventually(lambda: told)
        await eventually(lambda: view.answer is None)


async def test_what_somebody_else_has_asked_stands_in_for_the_next_question(short_dir: Path) -> None:
    path, now, told = short_dir / "kubelet.sock", 1000.0, list[int]()
    view = KubeletView(path, telling(told), clocks=SystemClocks(monotonic=lambda: now), pace=PACE)
    async with serving(path), background(view.run()):
        view.want(0)
        await eventually(lambda: told)
        half = PACE.every / 2
        for number in range(2, 5):
            before = view.answer
            view.take_answer(now + half - 1, [("a.b/c", "d0")])
            assert view.answer is before, "too early: the next question is far"
            now += half
            view.take_answer(now, None)
            assert view.answer is before, "the kubelet refused that question"
            view.take_answer(now, [("a.b/c", "d0"), ("a.b/c", "d1")])
            assert view.answer is not None
            assert (view.answer.number, view.answer.asked_at, len(told)) == (number, now, number)
            assert view.answer.ids == {"a.b/c": {"d0", "d1"}}


async def test_what_somebody_else_has_asked_answers_no_question_with_a_reason(short_dir: Path) -> None:
    path = short_dir / "kubelet.sock"
    async with viewing(path) as (view, told):
        # Nobody wants anything yet.
        view.take_answer(time.monotonic(), [("a.b/c", "d0")])
        assert (view.answer, told) == (None, [])
        async with serving(path) as kubelet:
            view.want(0)
            await eventually(lambda: told)
            # The last question is a moment ago.
            view.take_answer(time.monotonic(), [("a.b/c", "d0")])
            # The kubelet may not have seen yet what this question is for.
            view.want(0.05)
            view.take_answer(time.monotonic() + PACE.every, [("a.b/c", "d0")])
            assert len(told) == 1
            await eventually(lambda: kubelet.asked == 2)
            assert view.answer is None or view.answer.ids == {}
