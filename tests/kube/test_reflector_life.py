"""A reflector's handler and its end: faults of the handler are logged and mended, and stop ends every wait at once."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from kube.backoff import BackoffPolicy
from kube.bodies import JsonObject
from kube.collection import Collection
from kube.errors import KubeError
from kube.reflector import HandlerFailed, Reflector
from tests.kube.conftest import client_of
from tests.kube.watched import PATH, QUICK, Notes, event, heard, not_now, reflecting, thing, watched
from tests.waiting import until


def test_a_fault_of_the_handler_is_told_and_it_gets_everything_anew(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Exception] = []
    with watched() as collection:
        notes = Notes()
        with reflecting(collection, notes, on_failure=told.append) as reflector:
            assert reflector.synced.wait(60)
            notes.failing = True
            with caplog.at_level(logging.WARNING, "ostler.kube"):
                collection.send(event("ADDED", thing("a", 11)))
                heard(notes, "replaced  @10", "applied a", "replaced  @10")
                until(lambda: collection.begun == 2)
            collection.send(event("ADDED", thing("b", 12)))
            heard(notes, "replaced  @10", "applied a", "replaced  @10", "applied b")
    (fault,) = told
    assert isinstance(fault, HandlerFailed)
    assert str(fault) == "the handler failed: ValueError: a note cannot be taken"
    assert isinstance(fault.__cause__, ValueError)
    assert "a note cannot be taken" in caplog.text


def test_a_handler_that_fails_at_the_first_list_is_not_synced() -> None:
    with watched() as collection:
        notes = Notes()
        notes.failing = True
        with reflecting(collection, notes) as reflector:
            assert reflector.synced.wait(60)
            heard(notes, "replaced  @10", "replaced  @10")


def test_who_cannot_be_told_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def told(_: Exception) -> None:
        raise ValueError("deaf")

    with watched() as collection:
        collection.lists.append(not_now())
        with reflecting(collection, Notes(), on_failure=told) as reflector:
            assert reflector.synced.wait(60)
    assert "the report of a failed watch failed" in caplog.text


def test_a_mistake_in_reading_objects_is_told_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    class Mistaken(Collection):
        def read(self, body: JsonObject) -> JsonObject:
            raise KeyError("mistake")

    with watched() as collection:
        collection.things = [thing("a", 1)]
        told: list[Exception] = []
        source = Mistaken(client_of(collection.server), PATH)
        reflector = Reflector(source, Notes(), random=lambda: 0.5, policy=QUICK, on_failure=told.append)
        reflector.start()
        until(lambda: len(told) >= 2)
        assert reflector.stop(60)
    assert all(isinstance(error, KeyError) and not isinstance(error, KubeError) for error in told)
    assert "Traceback" in caplog.text


def test_the_same_fault_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with watched() as collection:
        collection.lists.extend((not_now(), not_now(), not_now()))
        with reflecting(collection, Notes()) as reflector:
            assert reflector.synced.wait(60)
    assert [record.getMessage() for record in caplog.records].count("a watch failed") == 1


def test_stop_ends_a_quiet_watch_at_once_and_nobody_is_told_afterwards() -> None:
    with watched() as collection:
        notes = Notes()
        with reflecting(collection, notes) as reflector:
            until(lambda: reflector.status().watching)
            began = time.monotonic()
            assert reflector.stop(50)
            assert time.monotonic() - began < 30
            before = list(notes.heard)
            collection.send(event("ADDED", thing("a", 11)))
        assert notes.heard == before


def test_stop_waits_for_a_handler_that_is_at_work() -> None:
    entered, leave = threading.Event(), threading.Event()
    with watched() as collection:
        notes = Notes()

        def on_each() -> None:
            entered.set()
            leave.wait(60)

        notes.on_each = on_each
        with reflecting(collection, notes) as reflector:
            assert entered.wait(60)
            stopping = threading.Thread(target=reflector.stop)
            stopping.start()
            assert stopping.is_alive()
            leave.set()
            stopping.join(60)
            assert notes.heard == ["replaced  @10"]


def test_a_handler_may_stop_its_reflector() -> None:
    with watched() as collection:
        notes = Notes()
        with reflecting(collection, notes) as reflector:

            def on_each() -> None:
                assert not reflector.stop()

            notes.on_each = on_each
            collection.send(event("ADDED", thing("a", 11)))
            until(lambda: not reflector.status().running)
        assert reflector.status().failing == ""


def test_stop_ends_a_wait_at_once() -> None:
    with watched() as collection:
        collection.lists.append(not_now())
        with reflecting(collection, Notes(), policy=BackoffPolicy(first=60)) as reflector:
            until(lambda: reflector.status().failures == 1)
            began = time.monotonic()
            assert reflector.stop(50)
            assert time.monotonic() - began < 30


def test_stop_before_start_and_twice_is_harmless() -> None:
    with watched() as collection:
        reflector = Reflector(Collection(client_of(collection.server), PATH), Notes(), random=lambda: 0.5)
        assert reflector.stop()
        assert reflector.stop()


def test_a_closed_client_ends_it() -> None:
    with watched() as collection:
        client = client_of(collection.server)
        reflector = Reflector(Collection(client, PATH), Notes(), random=lambda: 0.5, policy=QUICK)
        reflector.start()
        until(lambda: reflector.status().watching)
        client.close()
        until(lambda: not reflector.status().running)
        assert len(collection.server.asked) == 2
