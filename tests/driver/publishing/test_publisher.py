"""How views become updates: at once, then coalesced; layouts kept; faults survived."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from driver.devices.view import DoorView, DraDevice
from driver.publishing.publication import AWAY_PATIENCE, PATIENCE, ErrorHandler, PublishingFaults, SliceController
from driver.publishing.publisher import SlicePublisher
from driver.slices.model import DriverResources
from kube.errors import ConfigurationError, RequestError, Unreachable
from node.clocks import SystemClocks
from node.events import EventType
from node.rules import Doors, Rule
from tests.driver.publishing.controllers import RecordingController
from tests.making.devices import gpu
from tests.making.events import RecordedEvents
from tests.waiting import until

RULE = Rule("nvidia.com/gpu", door=Doors.DRA)


def view(*numbers: int, generation: int = 1, healthy: bool = True) -> DoorView:
    return DoorView(tuple(DraDevice(gpu(number), RULE, healthy) for number in numbers), generation=generation)


def names(*numbers: int) -> tuple[str, ...]:
    return tuple(gpu(number).name for number in numbers)


Making = Callable[..., SlicePublisher]


@pytest.fixture
def told() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def publishing(told: RecordedEvents) -> Iterator[Making]:
    made: list[SlicePublisher] = []

    def make(
        source: RecordingController | Callable[[ErrorHandler], SliceController], **fields: object
    ) -> SlicePublisher:
        maker = source if callable(source) else lambda _: source
        given = {"clocks": SystemClocks(random=lambda: 0.0), **fields}
        made.append(SlicePublisher("node-1", maker, events=told, **given))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for publisher in made:
        publisher.stop()


def test_the_first_view_is_published_at_once(publishing: Making) -> None:
    controller = RecordingController()
    publisher = publishing(controller, interval=3600.0)
    publisher.apply(view(0, 1))
    publisher.start()
    until(lambda: controller.given == [(names(0, 1),)])


def test_a_burst_of_views_is_one_update_with_the_newest(publishing: Making) -> None:
    controller = RecordingController()
    publisher = publishing(controller, interval=0.3)
    publisher.start()
    publisher.apply(view(0))
    until(lambda: controller.given)
    for numbers in ((0, 1), (0, 1, 2), (0, 1, 2, 3)):
        publisher.apply(view(*numbers))
    until(lambda: len(controller.given) == 2)
    assert controller.given[1] == (names(0, 1, 2, 3),)


def test_a_generation_is_told_only_once_the_controller_has_its_devices(publishing: Making) -> None:
    class Slow(RecordingController):
        def update(self, resources: DriverResources | None, *, afresh: bool = False) -> None:
            told.append(publisher.publication().generation)
            super().update(resources, afresh=afresh)

    told: list[int] = []
    publisher = publishing(Slow(), interval=0.0)
    publisher.apply(view(0, generation=1))
    publisher.start()
    until(lambda: publisher.publication().generation == 1)
    publisher.apply(view(0, 1, generation=2))
    until(lambda: publisher.publication().generation == 2)
    assert told == [0, 1]


def test_a_view_that_says_nothing_new_reaches_nobody_but_its_generation_is_known(publishing: Making) -> None:
    controller = RecordingController()
    publisher = publishing(controller, interval=0.0)
    publisher.apply(view(0))
    publisher.start()
    until(lambda: controller.given)
    publisher.apply(view(0, generation=7))
    until(lambda: publisher.publication().generation == 7)
    publisher.apply(view(0, 1, generation=8))
    until(lambda: len(controller.given) == 2)


def test_a_view_of_other_devices_that_are_described_alike_reaches_nobody_and_counts_as_published(
    publishing: Making,
) -> None:
    controller = RecordingController()
    controller.offered = frozenset()
    publisher = publishing(controller, interval=0.0)
    publisher.apply(view(0))
    publisher.start()
    until(lambda: controller.given)
    noted = DoorView((DraDevice(gpu(0), RULE, True, "a note for people"),), generation=2)
    publisher.apply(noted)
    until(lambda: publisher.publication().generation == 2 and publisher.free() is not None)
    publisher.apply(replace(noted, devices=(*noted.devices, *view(1).devices)))
    until(lambda: len(controller.given) > 1)
    assert controller.given == [(names(0),), (names(0, 1),)]


def test_a_view_gives_way_to_claims_that_are_answered_but_not_for_long(publishing: Making) -> None:
    controller, asked = RecordingController(), list[bool]()

    def busy() -> bool:
        asked.append(not controller.given)
        return len(asked) < 3 or bool(controller.given)

    publisher = publishing(controller, interval=0.0, gives_way=busy)
    publisher.apply(view(0))
    publisher.start()
    until(lambda: controller.given)
    assert asked == [True] * 3
    publisher.apply(view(0, 1))
    until(lambda: len(controller.given) == 2)


def test_a_node_without_devices_has_one_empty_slice(publishing: Making) -> None:
    controller = RecordingController()
    publisher = publishing(controller)
    publisher.apply(view())
    publisher.start()
    until(lambda: controller.given == [((),)])


def test_devices_stay_in_the_slices_that_an_earlier_life_left_them_in(publishing: Making) -> None:
    controller = RecordingController(stored=(names(2), names(0, 3)))
    publisher = publishing(controller)
    publisher.apply(view(0, 1, 2))
    publisher.start()
    until(lambda: controller.given == [(names(1, 2), names(0))])


def test_nothing_is_published_before_the_api_has_told_what_it_has(publishing: Making, told: RecordedEvents) -> None:
    now = [0.0]
    controller = RecordingController(stored=(names(1), names(0)))
    controller.synced.clear()
    publisher = publishing(controller, clocks=SystemClocks(monotonic=lambda: now[0], random=lambda: 0.0))
    publisher.apply(view(0, 1))
    publisher.start()
    until(lambda: publisher.publication().error == "waiting for the API server's list of our slices")
    assert controller.given == []
    now[0] = PATIENCE
    until(lambda: told.reasons == ["SlicesNotPublished"])
    controller.synced.set()
    until(lambda: controller.given == [(names(1), names(0))])
    until(lambda: told.reasons == ["SlicesNotPublished", "SlicesPublished"])
    assert publisher.publication().error == ""


def test_a_controller_that_cannot_be_made_is_told_once_and_made_later(publishing: Making, told: RecordedEvents) -> None:
    controller = RecordingController()
    tries: list[int] = []

    def make(_: ErrorHandler) -> SliceController:
        tries.append(1)
        if len(tries) < 3:
            raise ConfigurationError("/etc/kubeconfig", "", "there is no such file", "write it")
        return controller

    publisher = publishing(make, clocks=SystemClocks(random=lambda: -0.9))
    publisher.apply(view(0))
    publisher.start()
    until(lambda: controller.given)
    assert told.events[0] == (
        EventType.WARNING,
        "SlicesNotPublished",
        "getting ready to publish: /etc/kubeconfig: there is no such file; write it",
    )
    until(lambda: told.reasons == ["SlicesNotPublished", "SlicesPublished"])


def test_a_device_that_cannot_be_described_leaves_what_is_published_and_the_next_view_comes(
    publishing: Making, told: RecordedEvents
) -> None:
    controller = RecordingController()
    publisher = publishing(controller, interval=0.0)
    publisher.apply(view(0))
    publisher.start()
    until(lambda: controller.given)
    publisher.apply(view(1, 1))
    until(lambda: told.reasons == ["SlicesNotPublished"])
    assert "is the name of two devices" in publisher.publication().error
    publisher.apply(view(2))
    until(lambda: controller.given[-1] == (names(2),))
    assert len(controller.given) == 2


def test_the_controller_is_made_in_the_publishers_thread_and_stopped_with_it(publishing: Making) -> None:
    controller = RecordingController()
    threads: list[str] = []

    def make(_: ErrorHandler) -> SliceController:
        threads.append(threading.current_thread().name)
        return controller

    publisher = publishing(make)
    publisher.start()
    until(lambda: controller.events == ["start"])
    publisher.stop()
    assert controller.events == ["start", "stop"]
    assert threads == ["publishing"]
    assert controller.given == []


def test_a_publisher_that_cannot_make_its_controller_stops_at_once(publishing: Making) -> None:
    def make(_: ErrorHandler) -> SliceController:
        raise ConfigurationError("/etc/kubeconfig", "", "there is no such file", "write it")

    publisher = publishing(make)
    publisher.start()
    until(lambda: publisher.publication().error)
    publisher.stop()
    assert not publisher._thread.is_alive()


def refused(text: str) -> RequestError:
    return RequestError("POST", "/apis", 503, "ServiceUnavailable", text)


class TestFaults:
    """What is told of faults."""

    def make(self) -> tuple[PublishingFaults, RecordedEvents, list[float]]:
        told, now = RecordedEvents(), [0.0]
        return PublishingFaults(told, SystemClocks(monotonic=lambda: now[0])), told, now

    def test_a_request_that_fails_for_a_moment_is_told_nobody(self) -> None:
        faults, told, now = self.make()
        faults.note(refused("a"), "publishing slices")
        now[0] = PATIENCE - 1
        faults.look(working=False)
        faults.look(working=True)
        assert (told.events, faults.last) == ([], "")

    def test_a_restart_of_the_server_and_the_time_until_all_agents_are_back_is_not_told(self) -> None:
        faults, told, now = self.make()
        faults.note(Unreachable("GET", "/x", "connection refused", sent=False), "watching slices")
        now[0] = AWAY_PATIENCE - 1
        # What a server says that is not ready yet.
        faults.note(refused("forbidden for now"), "watching slices")
        faults.look(working=False)
        faults.look(working=True)
        faults.note(Unreachable("GET", "/x", "connection refused", sent=False), "watching slices")
        now[0] += AWAY_PATIENCE - 1
        faults.look(working=False)
        assert told.reasons == []
        now[0] += 1
        faults.look(working=False)
        assert told.reasons == ["SlicesNotPublished"]

    def test_an_outage_is_one_warning_and_its_end_one_event(self) -> None:
        faults, told, now = self.make()
        for second in range(60):
            now[0] = float(second)
            faults.note(refused(f"attempt {second}"), "publishing slices")
            faults.look(working=False)
        faults.look(working=True)
        assert told.reasons == ["SlicesNotPublished", "SlicesPublished"]
        assert told.events[0][2].startswith("publishing slices: ")
        assert told.events[0][2].endswith("attempt 10")

    def test_what_needs_somebody_to_act_is_told_at_once_and_each_of_it_once(self) -> None:
        faults, told, _ = self.make()
        for text in ("a", "b", "a", "b"):
            faults.note(ValueError(text), "publishing slices")
        assert [message for *_, message in told.events] == ["publishing slices: a", "publishing slices: b"]


def test_replacing_health_alone_is_a_new_view(publishing: Making) -> None:
    controller = RecordingController()
    publisher = publishing(controller, interval=0.0)
    publisher.apply(view(0))
    publisher.start()
    until(lambda: controller.given)
    ill = replace(view(0), devices=(DraDevice(gpu(0), RULE, healthy=False),))
    publisher.apply(ill)
    until(lambda: "taints" in publisher.publication().desired[0][0])


def test_why_slices_cannot_be_watched_is_told_when_it_lasts(publishing: Making, told: RecordedEvents) -> None:
    now = [0.0]
    controller = RecordingController()
    controller.synced.clear()
    controller.watching_fault = "GET /slices: 403 Forbidden: the account may not list resourceslices"
    publisher = publishing(controller, clocks=SystemClocks(monotonic=lambda: now[0], random=lambda: 0.0))
    publisher.start()
    until(lambda: publisher._faults.last)
    assert publisher.publication().error == controller.watching_fault
    now[0] = PATIENCE
    until(lambda: told.reasons == ["SlicesNotPublished"])
    assert told.events[0][2] == controller.watching_fault
