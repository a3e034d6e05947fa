"""Typed events reach who subscribed to them: in order, at once, and before the publisher goes on."""

from __future__ import annotations

import pytest

from node.events import EventBus
from node.values import Value, value


@value
class Opened(Value):
    door: str


@value
class _Closed(Value):
    door: str


def test_subscribers_of_a_type_hear_its_events_in_the_order_of_subscription() -> None:
    bus, heard = EventBus(), list[str]()
    bus.subscribe(Opened, lambda event: heard.append(f"first {event.door}"))
    bus.subscribe(_Closed, lambda event: heard.append(f"closed {event.door}"))
    bus.subscribe(Opened, lambda event: heard.append(f"second {event.door}"))
    bus.publish(Opened("plugin"))
    assert heard == ["first plugin", "second plugin"]
    bus.publish("nobody subscribed to texts")


def test_what_a_subscriber_publishes_is_delivered_before_the_next_subscriber_is_called() -> None:
    bus, heard = EventBus(), list[str]()
    bus.subscribe(Opened, lambda event: bus.publish(_Closed(event.door)))
    bus.subscribe(Opened, lambda _: heard.append("opened"))
    bus.subscribe(_Closed, lambda _: heard.append("closed"))
    bus.publish(Opened("dra"))
    assert heard == ["closed", "opened"]


def test_what_a_subscriber_raises_reaches_the_publisher() -> None:
    def refuse(_: Opened) -> None:
        raise ValueError("refused")

    bus = EventBus()
    bus.subscribe(Opened, refuse)
    with pytest.raises(ValueError, match="refused"):
        bus.publish(Opened("plugin"))
