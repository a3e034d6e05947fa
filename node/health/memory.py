"""The health data that survives a restart, as JSON: overrides, troubles that no source reports again, limits. Pure.

It has the troubles that wait for a reset or a person, and events that ask for a drain, until their quiet time is over.
Sources report the other troubles again, but not their beginning: so devices that have been bad for long are recorded as
excused, and start no eviction limit only because the agent starts. A reboot is a reset, so it ends everything that does
not wait for a person. The end of a quiet time is rounded to minutes, so that a storm of events causes no storm of
writes. Invalid entries are left out one by one: the rest still holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from node.files import JsonValue
from node.health.eviction_limits import EvictionLimit, EvictionLimits
from node.health.findings import EVENT, Override
from node.health.policy import HealthPace
from node.health.signal import Instance, Trouble
from node.health.state import Action, HealthState, Recovery
from node.health.track import Track
from node.inventory.model import DeviceKind
from node.values import Value, value

SCHEMA = "ostler.dev/health/v1"
_STEP = 60.0


@value
class SavedHealth(Value):
    """What is saved: tracks and overrides by the device's name; ``excused``: devices that start no eviction limit.

    ``ailing``: devices that start none before they begin to evict.
    """

    tracks: tuple[tuple[str, Track], ...] = ()
    overrides: tuple[tuple[str, Override], ...] = ()
    eviction_limits: tuple[EvictionLimit, ...] = ()
    excused: tuple[str, ...] = ()
    ailing: tuple[str, ...] = ()


def to_data(
    tracks: Iterable[tuple[str, Track]],
    overrides: Mapping[str, Override],
    eviction_limits: EvictionLimits,
    boot: str,
    pace: HealthPace,
) -> JsonValue:
    """The record's data; equal for equal states, and hardly changed by a trouble that is only reported again."""
    lasting = [(name, track) for name, track in tracks if _lasts(track)]
    troubles: list[JsonValue] = [
        _track_data(name, track, pace) for name, track in sorted(lasting, key=lambda pair: (pair[0], pair[1].since))
    ]
    said: list[JsonValue] = [
        {
            "device": name,
            "state": override.state.value,
            "reason": override.reason,
            "at": override.at,
            "until": override.until,
        }
        for name, override in sorted(overrides.items())
    ]
    on: list[JsonValue] = [
        {"kind": limit.kind.value, "since": limit.since, "reason": limit.reason} for limit in eviction_limits.on
    ]
    excused: list[JsonValue] = [*eviction_limits.excused]
    ailing: list[JsonValue] = [*eviction_limits.ailing]
    return {"boot": boot, "troubles": troubles, "words": said, "brakes": on, "excused": excused, "ailing": ailing}


def from_data(data: JsonValue, boot: str) -> SavedHealth:
    """What a record says in this boot; ``boot`` is empty if it is unknown."""
    found = data if isinstance(data, dict) else {}
    same = not boot or found.get("boot") == boot
    tracks = [pair for entry in _entries(found.get("troubles")) if (pair := _track(entry)) is not None]
    return SavedHealth(
        tuple((name, track) for name, track in tracks if same or track.action is Action.REPLACE),
        tuple(said for entry in _entries(found.get("words")) if (said := _override(entry)) is not None),
        tuple(limit for entry in _entries(found.get("brakes")) if (limit := _limit(entry)) is not None),
        _names(found.get("excused")),
        _names(found.get("ailing")),
    )


def _lasts(track: Track) -> bool:
    drains = track.active and track.event and track.action is Action.DRAIN
    return drains or track.waits_for_person or track.waits_for_reset


def _track_data(name: str, track: Track, pace: HealthPace) -> JsonValue:
    end = track.over_at(pace)
    return {
        "device": name,
        "kind": track.kind.value,
        "source": track.source,
        "action": track.action.value,
        "recovery": track.recovery.value,
        "reason": track.reason,
        "since": track.since,
        "code": track.code,
        "instance": list(track.instance) if track.instance is not None else None,
        "uuid": track.uuid,
        "mark": track.mark,
        "base": track.base,
        "until": None if end is None else math.ceil(end / _STEP) * _STEP,
    }


def _track(entry: dict[str, JsonValue]) -> tuple[str, Track] | None:
    try:
        kind, action = Trouble(_text(entry, "kind")), Action(_text(entry, "action"))
        since, code = _number(entry, "since"), entry.get("code")
        base = 0.0 if entry.get("base") is None else _number(entry, "base")
        end = None if entry.get("until") is None else _number(entry, "until")
        track = Track(
            kind,
            _text(entry, "source") or EVENT,
            action,
            Recovery(_text(entry, "recovery")),
            _text(entry, "reason"),
            since,
            since if end is None else end - base,
            # A condition that waits for a person counts as an event: no look ends it.
            event=True,
            base=base,
            code=code if isinstance(code, int) else None,
            instance=_instance(entry.get("instance")),
            uuid=_text(entry, "uuid"),
            mark=_text(entry, "mark"),
        )
    except ValueError:
        return None
    name = _text(entry, "device")
    lasts = action in (Action.RESET, Action.REPLACE) or (action is Action.DRAIN and end is not None)
    return (name, track) if name and lasts else None


def _override(entry: dict[str, JsonValue]) -> tuple[str, Override] | None:
    try:
        until = None if entry.get("until") is None else _number(entry, "until")
        override = Override(HealthState(_text(entry, "state")), _text(entry, "reason"), _number(entry, "at"), until)
    except ValueError:
        return None
    return (_text(entry, "device"), override) if _text(entry, "device") else None


def _limit(entry: dict[str, JsonValue]) -> EvictionLimit | None:
    try:
        return EvictionLimit(DeviceKind(_text(entry, "kind")), _number(entry, "since"), _text(entry, "reason"))
    except ValueError:
        return None


def _entries(data: JsonValue) -> list[dict[str, JsonValue]]:
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


def _names(data: JsonValue) -> tuple[str, ...]:
    return tuple(name for name in data if isinstance(name, str) and name) if isinstance(data, list) else ()


def _text(entry: dict[str, JsonValue], key: str) -> str:
    found = entry.get(key)
    return found if isinstance(found, str) else ""


def _number(entry: dict[str, JsonValue], key: str) -> float:
    found = entry.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(key)  # noqa: TRY004 - one exception for every kind of damage
    return float(found)


def _instance(data: JsonValue) -> Instance | None:
    match data:
        case [int(gpu), int(compute)]:
            return gpu, compute
        case _:
            return None
