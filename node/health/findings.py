"""The findings against devices, whatever their source: tracks of troubles, what scans found, and overrides. Pure.

Each source reports for itself: a report never ends what another source reported, so the order of reports does not
matter. A person's override replaces everything that was measured, but not what a scan finds: a device that is gone or
cannot be given to a container stays so, whatever the override says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from node.health.finding import Finding
from node.health.policy import ENDED_BY_RESETS, Policy
from node.health.signal import Condition, HealthEvent, Instance, Look, Trouble, instance_of, is_instance, reaches
from node.health.state import Action, Health, HealthState, Recovery
from node.health.track import Track
from node.health.wording import condition_reason, event_reason
from node.health.xids import is_of_all_instances
from node.inventory.model import Device, DeviceKind, is_gone
from node.values import Value, replace, value

SCAN = "scan"
"""The name of scans as a source."""
EVENT = "event"
_UNSEEN = 3600.0
"""Seconds after which findings against a device that no scan knows are forgotten."""
_ABSENT = 30 * 24 * 3600.0
"""The same for findings that a person must end: longer than a node waits for its driver, or a GPU for its vendor."""
_RESET_IF_LOST = frozenset({DeviceKind.GPU, DeviceKind.MIG})
"""Kinds whose lost devices do not come back by themselves; scans say so, too."""
_Key = tuple[str, Trouble, Action, Instance | None]


@value
class Override(Value):
    """A person's override of a device's health, until a time (Unix seconds) or, if that is None, until it is
    cleared."""

    state: HealthState
    reason: str
    at: float
    until: float | None = None

    def shifted(self, seconds: float) -> Override:
        """This override with its times moved."""
        return replace(self, at=self.at + seconds, until=None if self.until is None else self.until + seconds)


class Findings:
    """See the module. ``now`` is in Unix seconds everywhere; methods that change something return the devices."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.overrides: dict[str, Override] = {}
        self._tracks: dict[str, dict[_Key, Track]] = {}
        self._scans: dict[str, Track] = {}
        self._held: dict[str, Health] = {}
        """The last findings of scans on devices that they find healthy now, until the quiet time is over."""
        self._known: dict[str, float] = {}
        """When a scan last had each device that has findings, or when these were restored."""

    def use(self, policy: Policy) -> None:
        """Follow another policy; the former one has judged what happened before."""
        self.policy = policy

    @property
    def is_empty(self) -> bool:
        """Whether no device has findings or an override, or had some lately."""
        return not (self._tracks or self._scans or self.overrides)

    def concerns(self, name: str) -> bool:
        """Whether a device has findings, or had some lately."""
        return name in self._tracks or name in self._scans or name in self.overrides

    def tracks(self, name: str) -> Iterable[Track]:
        """A device's tracks, including those that ended lately, without the scan's."""
        return self._tracks.get(name, {}).values()

    def all_tracks(self) -> Iterator[tuple[str, Track]]:
        """The tracks of every device, by its name."""
        for name, tracks in self._tracks.items():
            for track in tracks.values():
                yield name, track

    def restore_overrides(self, overrides: Mapping[str, Override]) -> None:
        """Restore overrides from before a restart; a newer one of the same device counts."""
        self.overrides = {**overrides, **self.overrides}

    def restore(self, name: str, track: Track, now: float) -> None:
        """Restore a track from before a restart."""
        self._tracks.setdefault(name, {}).setdefault(_key(track), track)
        self._known[name] = now

    def forget_waiting(self, before: float) -> set[str]:
        """Forget tracks that have waited for a reset or a person since before that time; returns their devices."""
        names = set()
        for name, tracks in self._tracks.items():
            for key in [key for key, track in tracks.items() if track.waits and track.last < before]:
                del tracks[key]
                names.add(name)
        return names

    def event(self, event: HealthEvent, device: Device | None, mark: str, now: float) -> Track | None:
        """Take in an event under the driver with this mark; None if the policy ignores it."""
        action = self.policy.action(event.kind, event.code)
        if action is Action.IGNORE:
            return None
        track = Track(
            event.kind,
            EVENT,
            action,
            _recovery(event.kind, action, device),
            event_reason(event),
            now,
            now,
            event=True,
            base=self.policy.pace.event_quiet(event.kind, action),
            code=event.code,
            instance=None if is_of_all_instances(event.code) else instance_of(event.instance),
            uuid=(device.uuid or "") if device is not None else "",
        )
        known = self._came(event.device, track, now)
        known.happened(mark)
        return known

    def looked(self, look: Look, devices: Mapping[str, Device], now: float) -> set[str]:
        """Take in a source's look; returns the devices on which it reported something that may matter."""
        changed = set()
        for name, found in look.found.items():
            device = devices.get(name)
            seen = {key for each in found if (key := self._condition(name, device, look.source, each, now)) is not None}
            for key, track in self._tracks.get(name, {}).items():
                if track.source == look.source and not track.event and key not in seen and track.active:
                    track.went(now, self.policy.pace)
                    changed.add(name)
            if seen:
                changed.add(name)
        return changed

    def scanned(self, device: Device, now: float) -> None:
        """Take in a device as a scan found it."""
        health, name = device.health, device.name
        track = self._scans.get(name)
        if health.state is HealthState.HEALTHY:
            if track is not None:
                track.went(now, self.policy.pace)
            return
        if health.cause == Trouble.PERSON:
            return  # Somebody quiesced the driver: the device does not flap.
        self._held[name] = health
        if track is None:
            self._scans[name] = Track(Trouble.SCAN, SCAN, Action.DRAIN, health.recovery, health.reason, now, now)
        elif not track.active or track.clean is not None:
            track.came(health.reason, None, now, self.policy.pace)

    def advance(self, now: float) -> dict[str, list[Track]]:
        """Let time pass; returns the tracks that ended, by device (none for an override that ended)."""
        ended: dict[str, list[Track]] = {}
        pace = self.policy.pace
        for name, track in (*self.all_tracks(), *self._scans.items()):
            if track.active and track.pass_to(now, pace):
                ended.setdefault(name, []).append(track)
        for name in [
            name for name, override in self.overrides.items() if override.until is not None and override.until <= now
        ]:
            del self.overrides[name]
            ended.setdefault(name, [])
        return ended

    def next_end(self) -> float | None:
        """When the next finding ends; None if time alone ends nothing."""
        pace = self.policy.pace
        ends = [track.over_at(pace) for _, track in (*self.all_tracks(), *self._scans.items())]
        ends += [override.until for override in self.overrides.values()]
        return min((end for end in ends if end is not None), default=None)

    def clearable(self, name: str) -> tuple[str, ...]:
        """What could be cleared of a device: everything but troubles that are still there."""
        found = [f"the override ({override.reason})"] if (override := self.overrides.get(name)) is not None else []
        return (*found, *(track.reason for track in self.tracks(name) if track.active and _passed(track)))

    def clear(self, name: str) -> None:
        """Clear that."""
        self.overrides.pop(name, None)
        tracks = self._tracks.get(name, {})
        for key in [key for key, track in tracks.items() if _passed(track)]:
            del tracks[key]

    def replaced(self, name: str) -> None:
        """Forget the former device's findings: another device is in its place."""
        self._tracks.pop(name, None)

    def shift(self, seconds: float) -> None:
        """Move all times: the clock jumped by that many seconds. What is past is as long ago as before."""
        for _, track in (*self.all_tracks(), *self._scans.items()):
            track.shift(seconds)
        self.overrides = {name: override.shifted(seconds) for name, override in self.overrides.items()}
        self._known = {name: known + seconds for name, known in self._known.items()}

    def tidy(self, known: Iterable[str], now: float) -> None:
        """Forget tracks that no longer count, and those of devices that no scan has known for long."""
        names, pace = frozenset(known), self.policy.pace
        for name in tuple(self._tracks):
            tracks = self._tracks[name]
            for key in [key for key, track in tracks.items() if track.forgettable(now, pace)]:
                del tracks[key]
            if name in names:
                self._known[name] = now
            if not tracks or self._unseen(name, now):
                del self._tracks[name]
        self._known = {name: known for name, known in self._known.items() if name in self._tracks}
        for name, track in tuple(self._scans.items()):
            if name not in names or track.forgettable(now, pace):
                del self._scans[name]
                self._held.pop(name, None)

    def _unseen(self, name: str, now: float) -> bool:
        known = self._known.get(name, -math.inf)
        return all(
            now - max(known, track.last) > (_ABSENT if track.waits_for_person else _UNSEEN)
            for track in self.tracks(name)
        )

    def of(self, device: Device, wholes: Iterable[Device], parts: Iterable[Device]) -> list[Finding]:
        """All findings against a device: its own, its wholes' and, limited to degraded, its parts'."""
        found = [*self._of_scan(device)]
        override = self.overrides.get(device.name)
        if override is not None:
            overruled = override.state is HealthState.HEALTHY and not _stays(device.health)
            return [*(() if overruled else found), _of_override(override)]
        parts = tuple(parts)
        found += self._own(device, parts)
        for whole in wholes:
            above = self.overrides.get(whole.name)
            if above is not None:
                inherited = [_of_override(above)]
            else:
                inherited = [self._finding(track) for track in self.tracks(whole.name) if _meant(track, device)]
            found += [finding.handed_down(whole.name, whole.kind.value.upper()) for finding in inherited]
        return found

    def _condition(
        self, name: str, device: Device | None, source: str, condition: Condition, now: float
    ) -> _Key | None:
        action = self.policy.action(condition.kind, condition.code)
        if action is Action.IGNORE:
            return None
        track = Track(
            condition.kind,
            source,
            action,
            _recovery(condition.kind, action, device),
            condition_reason(condition),
            now,
            now,
            # Most troubles for which the configuration wants a reset also end by themselves, which resets nothing.
            event=action is Action.RESET and condition.kind not in ENDED_BY_RESETS,
            base=self.policy.pace.condition_quiet(condition.kind, action),
            needs=self.policy.pace.looks
            if source in self.policy.polled and condition.kind is not Trouble.SILENT
            else 0,
            code=condition.code,
            uuid=(device.uuid or "") if device is not None else "",
        )
        self._came(name, track, now)
        return _key(track)

    def _came(self, name: str, track: Track, now: float) -> Track:
        tracks = self._tracks.setdefault(name, {})
        known = tracks.setdefault(_key(track), track)
        if known is not track:
            if not known.active:
                known.uuid, known.mark = track.uuid, track.mark
            known.came(track.reason, track.code, now, self.policy.pace)
        return known

    def _of_scan(self, device: Device) -> Iterator[Finding]:
        health, track = device.health, self._scans.get(device.name)
        flapping = track is not None and track.active and track.flapping(self.policy.pace)
        if health.state is not HealthState.HEALTHY:
            yield _scanned(health, flapping=flapping, gone=is_gone(device))
        elif track is not None and track.active:
            held = self._held[device.name]
            yield _scanned(held, flapping=flapping, until=track.over_at(self.policy.pace), over=True)

    def _own(self, device: Device, parts: tuple[Device, ...]) -> Iterator[Finding]:
        for track in self.tracks(device.name):
            if not track.active:
                continue
            finding = self._finding(track)
            if track.instance is None or not parts:
                yield finding
            else:
                yield _bounded(finding, track.instance, parts)

    def _finding(self, track: Track) -> Finding:
        pace = self.policy.pace
        state = HealthState.UNKNOWN if track.kind is Trouble.SILENT else track.action.state
        return Finding(
            state,
            track.kind,
            track.reason,
            track.recovery,
            track.source,
            track.since,
            track.flapping(pace),
            track.over_at(pace),
            over=track.clean is not None,
        )


def _key(track: Track) -> _Key:
    # One per action, not per XID: the number of XIDs is theirs, the number of tracks is ours.
    return track.source, track.kind, track.action, track.instance


def _recovery(kind: Trouble, action: Action, device: Device | None) -> Recovery:
    if kind is Trouble.ROW_REMAP and action is Action.WARN:
        return Recovery.RESET
    if kind is Trouble.LOST and action is Action.DRAIN and device is not None and device.kind in _RESET_IF_LOST:
        return Recovery.RESET
    return action.recovery


def _passed(track: Track) -> bool:
    return track.event or track.clean is not None or not track.active


def _of_override(override: Override) -> Finding:
    reason = override.reason if override.state is not HealthState.HEALTHY else ""
    return Finding(
        override.state, Trouble.PERSON, reason, Recovery.PERSON, Trouble.PERSON.value, override.at, until=override.until
    )


def _stays(health: Health) -> bool:
    """Whether no override replaces this finding of a scan."""
    return health.state in (HealthState.UNHEALTHY, HealthState.UNKNOWN)


def _scanned(
    health: Health, *, flapping: bool, until: float | None = None, gone: bool = False, over: bool = False
) -> Finding:
    kind, since = Trouble(health.cause) if health.cause else Trouble.SCAN, health.since
    return Finding(
        health.state, kind, health.reason, health.recovery, SCAN, since, flapping, until, gone=gone, over=over
    )


def _meant(track: Track, part: Device) -> bool:
    if not track.active or not reaches(track.kind, part):
        return False
    if track.kind is Trouble.ECC and not track.event and part.kind is DeviceKind.MIG:
        # The GPU's counter does not say whose memory it was. The driver does: a contained error is an XID of its
        # instance, and one that was not contained is one of the GPU.
        return False
    return track.instance is None or is_instance(part, track.instance)


def _bounded(finding: Finding, instance: Instance, parts: Iterable[Device]) -> Finding:
    """What a sick instance means for its GPU: it is degraded."""
    named = next((part.name for part in parts if is_instance(part, instance)), f"instance {instance[0]}/{instance[1]}")
    state = HealthState.DEGRADED if finding.state is HealthState.UNHEALTHY else finding.state
    return Finding(
        state,
        finding.kind,
        f"its MIG device {named}: {finding.reason}",
        finding.recovery,
        finding.source,
        finding.since,
        finding.flapping,
        finding.until,
    )
