"""What is published is on the record before; what moves away is withdrawn by a taint, or left out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.devices.view import OF_DOORS, DoorView, DraDevice
from driver.publishing.publisher import SlicePublisher
from driver.publishing.shown import NAME, ShownDevices
from driver.slices.model import DriverResources
from driver.slices.store import objects_in
from kube.bodies import text_at
from node.clocks import SystemClocks
from node.offer import Cause
from node.rules import Doors, Rule
from tests.driver.publishing.controllers import RecordingController
from tests.making.devices import gpu
from tests.making.events import RecordedEvents
from tests.waiting import until

RULE = Rule("nvidia.com/gpu", door=Doors.DRA)
AWAY = Rule("nvidia.com/gpu", door=Doors.PLUGIN)


def offered(number: int) -> DraDevice:
    return DraDevice(gpu(number), RULE, True)


def moving(number: int) -> DraDevice:
    return DraDevice(gpu(number), AWAY, False, "moving", Cause.MOVING)


def name(number: int) -> str:
    return gpu(number).name


class _Watcher(RecordingController):
    """Looks what is on the record when something is published."""

    def __init__(self, shown: ShownDevices, stored: tuple[tuple[str, ...], ...] = ()) -> None:
        super().__init__(stored)
        self._shown = shown
        self.unknown: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()

    def update(self, resources: DriverResources | None, *, afresh: bool = False) -> None:
        assert self.gate.wait(60)
        super().update(resources, afresh=afresh)
        self.unknown |= {each for group in self.given[-1] for each in group if not self._shown.on_disk(each)}


class _Rig:
    """A publisher with its record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = RecordedEvents()
        self.shown = ShownDevices(folder)
        self.shown.load()
        self.controller = _Watcher(self.shown)
        self.publisher: SlicePublisher | None = None

    def publish(self, *devices: DraDevice) -> SlicePublisher:
        if self.publisher is None:
            self.publisher = SlicePublisher(
                "node-1",
                lambda _: self.controller,
                events=self.told,
                shown=self.shown,
                interval=0.0,
                clocks=SystemClocks(random=lambda: -0.9),
            )
            self.publisher.apply(DoorView(devices))
            self.publisher.start()
        else:
            self.publisher.apply(DoorView(devices))
        return self.publisher


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[_Rig]:
    folder = tmp_path / "state"
    folder.mkdir()
    made = _Rig(folder)
    yield made
    if made.publisher is not None:
        made.publisher.stop()


def test_a_device_is_on_the_record_before_it_is_published(rig: _Rig) -> None:
    rig.publish(offered(0))
    until(lambda: rig.controller.given)
    rig.publish(offered(0), offered(1))
    until(lambda: len(rig.controller.given) == 2)
    assert rig.controller.unknown == set()
    again = ShownDevices(rig.folder)
    again.load()
    assert again.among([]) == {name(0), name(1)}


def test_a_device_counts_as_shown_before_the_publisher_comes_to_it(rig: _Rig) -> None:
    """A rule that turns back meanwhile must not have given the device to the plugin door."""
    rig.controller.synced.clear()
    rig.publish(offered(0), moving(1))
    assert rig.shown.among([]) == {name(0)}
    assert not (rig.folder / NAME).exists()
    rig.controller.synced.set()
    until(lambda: rig.controller.given)


def test_where_the_server_drops_taints_what_pods_have_is_left_out_and_what_is_ill_is_not(rig: _Rig) -> None:
    held = [
        DraDevice(gpu(number), RULE, False, "held", cause) for number, cause in enumerate(sorted(OF_DOORS), start=1)
    ]
    ill = DraDevice(gpu(7), RULE, False, "Xid 79", Cause.HEALTH)
    publisher = rig.publish(offered(0), *held, ill)
    until(lambda: rig.controller.given == [(tuple(name(number) for number in (0, 1, 2, 3, 4, 5, 7)),)])
    publisher.apply(DoorView((offered(0), *held, ill)), keeps_taints=False)
    until(lambda: rig.controller.given[-1] == ((name(0), name(7)),))
    publisher.apply(DoorView((offered(0), *held, ill)), keeps_taints=True)
    until(lambda: len(rig.controller.given) == 3)
    assert set(rig.controller.given[2][0]) == {name(number) for number in (0, 1, 2, 3, 4, 5, 7)}


def test_what_cannot_be_remembered_is_not_published_until_it_can(rig: _Rig) -> None:
    rig.publish(offered(0))
    until(lambda: rig.controller.given)
    away = rig.folder.with_name("away")
    rig.folder.rename(away)
    rig.publish(offered(0), offered(1))
    until(lambda: rig.told.reasons == ["SlicesNotPublished"])
    text = rig.told.events[0][2]
    assert text.startswith("saving which devices claims may get: ")
    assert text.endswith("dra-door.json cannot be written: No such file or directory")
    away.rename(rig.folder)
    until(lambda: rig.controller.given[-1] == ((name(0), name(1)),))
    assert rig.controller.given == [((name(0),),), ((name(0), name(1)),)]
    until(lambda: rig.told.reasons == ["SlicesNotPublished", "SlicesPublished"])


def test_what_is_published_already_stays_though_it_cannot_be_remembered(rig: _Rig) -> None:
    rig.controller = _Watcher(rig.shown, stored=((name(0),),))
    rig.folder.rmdir()
    rig.publish(offered(0), offered(1))
    until(lambda: rig.controller.given)
    assert rig.controller.given[0] == ((name(0),),)


def test_a_device_that_moves_away_is_not_remembered_anew(rig: _Rig) -> None:
    rig.publish(offered(0), moving(1))
    until(lambda: rig.controller.given)
    assert rig.controller.given == [((name(0), name(1)),)]
    assert rig.shown.among([]) == {name(0)}


def test_a_device_that_moves_away_keeps_its_place_with_a_taint(rig: _Rig) -> None:
    publisher = rig.publish(offered(0), moving(1))
    until(lambda: rig.controller.given)
    (_, withdrawn) = publisher.publication().desired[0]
    assert [text_at(taint, "key") for taint in objects_in(withdrawn, "taints")] == ["ostler.dev/moving"]


def test_where_the_server_drops_taints_a_device_that_moves_away_is_left_out(rig: _Rig) -> None:
    rig.controller.dropped = ("DRADeviceTaints",)
    ill = DraDevice(gpu(2), RULE, False, "the link is down", Cause.LINK_DOWN)
    publisher = rig.publish(offered(0), ill)
    until(lambda: rig.controller.given)
    rig.publish(offered(0), moving(1), ill, offered(3))
    until(lambda: len(rig.controller.given) == 2)
    assert rig.controller.given[1] == ((name(0), name(2), name(3)),), "a sick one counts until taints have shown"
    rig.controller.dropped = ()
    rig.publish(moving(0), moving(1), ill, offered(3))
    until(lambda: rig.controller.given[-1] == ((name(2), name(3)),))
    assert publisher.publication().error == ""


def test_what_the_newest_view_withdraws_is_free_until_the_controller_says_otherwise(rig: _Rig) -> None:
    publisher = rig.publish(offered(0))
    assert publisher.free() is None
    rig.controller.offered = frozenset({name(0)})
    until(lambda: publisher.free() == frozenset({name(0)}))
    rig.controller.offered = None
    assert publisher.free() is None


def test_what_slices_offer_is_not_known_while_a_newer_view_is_on_its_way(rig: _Rig) -> None:
    publisher = rig.publish(offered(0))
    rig.controller.offered = frozenset()
    until(lambda: publisher.free() == frozenset())
    rig.controller.gate.clear()
    publisher.apply(DoorView((offered(0), offered(1))))
    assert publisher.free() is None
    rig.controller.gate.set()
    until(lambda: publisher.free() == frozenset())


def test_nothing_is_known_of_slices_while_the_controller_has_an_older_view(rig: _Rig) -> None:
    rig.controller.offered = frozenset()
    rig.controller.synced.clear()
    publisher = rig.publish(offered(0))
    assert publisher.free() is None
    rig.controller.synced.set()
    until(lambda: publisher.free() == frozenset())
