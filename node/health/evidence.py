"""How it is known that a device was reset: nobody tells, so it is concluded from what can be seen. Pure.

A device was reset since its trouble came when, after that, it was away (gone from the bus, lost, without a driver, its
driver not loaded or let go of by ``ostler quiesce``) and a scan finds it usable again; when its driver is another one;
or when the driver had named a recovery action and names none any more. Of an event that comes again only what follows
the last one counts: one that comes while the newest scan still has the device away may come from the driver that is
back. Another boot is a reset as well (``memory``), and another UUID another device. A driver's library or device files
that were away for a while, as while a container that brings them is replaced, prove nothing: the module may have
stayed, and if it did not, its functions had no driver. The agent cannot see a reset that happens while it does not run
and leaves no other trace: then a person has to say so.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.health.signal import Trouble
from node.health.track import Track
from node.inventory.model import Device, Snapshot, SourceState
from node.inventory.retention import is_gone

_AWAY = (Trouble.LOST.value, Trouble.UNBOUND.value)
_NO_PROOF = ("(LIBRARY_NOT_FOUND)", "(DRIVER_UNREACHABLE)")
"""How the status of NVML ends its first sentence where only the library, or the device files, are missing."""
ENDS_RESETS = frozenset({Trouble.LOST, Trouble.UNBOUND, Trouble.RECOVERY})
"""Conditions whose end says that there was a reset."""


def is_away(device: Device, snapshot: Snapshot) -> bool:
    """Whether nothing of the device's former state can last."""
    if is_gone(device) or device.health.cause in _AWAY:
        return True
    # Waiting: its module is not there, or somebody had it let go of.
    waiting = any(
        source.name == "nvml"
        and source.state is SourceState.WAITING
        and not any(each in source.detail for each in _NO_PROOF)
        for source in snapshot.sources
    )
    return device.vendor == "nvidia" and waiting


def mark_of(device: Device | None, snapshot: Snapshot) -> str:
    """What tells the device's driver from the next one; empty while it is away, since the next one is not known yet."""
    return "" if device is None or is_away(device, snapshot) else str(device.attribute("driverVersion") or "")


def note(tracks: Iterable[Track], device: Device, snapshot: Snapshot, now: float) -> bool:
    """Take down what a scan says about resets since each of the tracks came; whether one was freed."""
    away, mark, freed = is_away(device, snapshot), mark_of(device, snapshot), False
    for track in tracks:
        if not track.waits_for_reset:
            continue
        track.away = track.away or away
        track.mark = track.mark or mark
        if (track.away or track.mark != (mark or track.mark)) and not away and device.health.usable:
            track.free(now, mark)
            freed = True
    return freed


def end(tracks: Iterable[Track], ended: Iterable[Track]) -> bool:
    """Free the tracks that came before these conditions were gone, where that says that there was a reset."""
    tracks = tuple(tracks)
    # That a GPU is unavailable asks for nothing: it has no code.
    asked = any(track.active and track.kind is Trouble.RECOVERY and track.code is not None for track in tracks)
    gone = [
        track.clean
        for track in ended
        if track.kind in ENDS_RESETS and track.clean is not None and not (asked and track.kind is Trouble.RECOVERY)
    ]
    freed = False
    for track in tracks:
        if gone and track.waits_for_reset and track.last <= max(gone):
            track.free(max(gone))
            freed = True
    return freed
