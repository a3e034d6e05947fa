"""The two doors as the process sees them: whether the second one is needed, and what every door can do at the end."""

from __future__ import annotations

from typing import Protocol

from node.rules import Door
from ostler.config.settings import Settings


class Streams(Protocol):
    """What is left to the kubelet when a process hands over: a door."""

    def hand_over(self) -> None:
        """Keep the streams when everything else ends."""
        ...

    async def leave(self, seconds: float) -> bool:
        """Whether the kubelet has ended them all within ``seconds``; none is left afterwards."""
        ...


def claims_to_serve(settings: Settings) -> bool:
    """Whether there is anything for the DRA door: devices by rule, or claims that an earlier process has prepared."""
    if any(rule.door is Door.DRA for rule in settings.rules):
        return True
    try:
        return any(settings.state_dir.joinpath("claims").glob("*.json"))
    except OSError:
        return False
