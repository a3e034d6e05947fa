"""A command runs without the garbage collector, and its objects are gone before the collector is back."""

from __future__ import annotations

import gc
import weakref

import pytest

from ostler.cli.garbage import uncollected


class Thing:
    """An object that a command makes."""


@uncollected()
def command() -> tuple[bool, weakref.ref[Thing]]:
    """Answers whether the collector is on, and how to see a local object's end."""
    thing = Thing()
    return gc.isenabled(), weakref.ref(thing)


def test_collector_is_off_in_a_command_and_back_after_it() -> None:
    assert gc.isenabled()
    enabled, thing = command()
    assert not enabled
    assert thing() is None
    assert gc.isenabled()


def test_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        command()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_collector_is_back_after_an_error() -> None:
    @uncollected()
    def failing() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        failing()
    assert gc.isenabled()
