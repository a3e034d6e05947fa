"""How the containers of a claim share the claim's own devices: the section ``sharing`` of parameters.

A claim may set the time slice of its GPUs, or have an MPS control daemon of its own with limits for each client. Both
change the GPU, so they need whole GPUs (MPS also MIG devices) that the claim has alone. A share of a device that its
rule shares is limited by what the claim consumes, and takes no such section.

Pure. ``SharingParameters`` is the meaning of both spellings: ours (``strategy: mps``) and that of NVIDIA's driver,
which ``driver.parameters.peers`` decodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from driver.claims.model import AllocatedConfig, ClaimError
from driver.parameters.errors import ParameterError, UnservedParameter, missing_or, shown, shown_key
from driver.parameters.values import Refusal, truth_of
from kube.bodies import Json
from node.inventory.model import DeviceKind
from node.inventory.nvidia.time_slices import TimeSlice
from node.sharing import Amounts, SharingStrategy, total
from node.values import Value, replace, value

_MIB = 1 << 20
_DIGITS = 4
"""Digits of a device's number in a claim."""
_VOLTA = (7, 0)
"""Compute capability from which time slices can be set, and MPS limits its clients."""
_FIELDS: Mapping[SharingStrategy, tuple[str, ...]] = {
    SharingStrategy.TIME_SLICING: ("interval",),
    SharingStrategy.MPS: ("threadPercentage", "memoryLimit", "memoryLimits", "multiUser"),
}


@value
class SharingParameters(Value):
    """One such section. ``place``: of its parameters, for messages; ``said``: its strategy as written.

    ``memory_limit`` (bytes) and ``thread_percentage`` are for each client of MPS, None for no limit; ``memory_limits``:
    the same by a GPU's UUID, or by its number among the claim's GPUs in the order of their UUIDs. ``of_peer``: it was
    written for NVIDIA's driver.
    """

    place: str
    strategy: SharingStrategy
    said: str
    time_slice: TimeSlice = TimeSlice.DEFAULT
    thread_percentage: int | None = None
    memory_limit: int | None = None
    memory_limits: tuple[tuple[str, int], ...] = ()
    multi_user: bool = False
    of_peer: bool = False

    @property
    def is_served_by_every_gpu(self) -> bool:
        """Whether every GPU meets it without any change."""
        return self.strategy is SharingStrategy.TIME_SLICING and self.time_slice is TimeSlice.DEFAULT

    @property
    def is_limited(self) -> bool:
        """Whether clients of MPS are limited."""
        return self.thread_percentage is not None or self.memory_limit is not None or bool(self.memory_limits)

    def refusal(self, field: str, found: str, fix: str) -> ParameterError:
        """The error that ``field`` of the section holds what was found."""
        kind = UnservedParameter if self.of_peer else ParameterError
        return kind(self.place, f"sharing.{field}", found, fix)

    def refused(self, why: str, fix: str) -> ParameterError:
        """The error that the device cannot be shared in this way."""
        if self.strategy is SharingStrategy.MPS:
            return self.refusal("strategy", f"{shown(self.said)}: {why}", fix)
        field = "timeSlicingConfig.interval" if self.of_peer else "interval"
        name = self.time_slice.name.title() if self.of_peer else self.time_slice.name.lower()
        return self.refusal(field, f"{shown(name)}: {why}", fix)

    def limits(self, uuids: Sequence[str]) -> Mapping[str, int | None]:
        """The memory limit on each of these devices; raises ``ParameterError`` for a limit of another device."""
        ordered = sorted(uuids)
        found: dict[str, int | None] = dict.fromkeys(ordered, self.memory_limit)
        for key, limit in self.memory_limits:
            is_number = key.isascii() and key.isdecimal() and len(key) <= _DIGITS
            uuid = ordered[int(key)] if is_number and int(key) < len(ordered) else key
            if uuid not in found:
                name = "mpsConfig.defaultPerDevicePinnedMemoryLimit" if self.of_peer else "memoryLimits"
                fix = f"write the UUID of a device of the claim, or a number below {len(ordered)}"
                raise self.refusal(f"{name}.{shown_key(key)}", "the claim has no such device", fix)
            found[uuid] = limit
        return found


@value
class SharingTarget(Value):
    """The facts of an allocated device that decide whether it can be shared in such a way.

    ``capability``: the GPU's compute capability, None if unknown. ``is_share``: its rule shares it already;
    ``looks_on``: the request has ``adminAccess``.
    """

    request: str
    name: str
    vendor: str
    kind: str
    capability: tuple[int, int] | None = None
    is_share: bool = False
    looks_on: bool = False


def check_sharing(sharing: SharingParameters, target: SharingTarget) -> None:
    """Raise ``ParameterError`` if the device cannot be shared as the section says."""
    if sharing.is_served_by_every_gpu:
        return
    device = f"device {target.name} of request {target.request}"
    if target.vendor != "nvidia" or target.kind not in (DeviceKind.GPU, DeviceKind.MIG):
        raise sharing.refused(f"{device} is not an NVIDIA GPU", "name the requests of such GPUs")
    if target.looks_on:
        raise sharing.refused(f"{device} is only monitored (adminAccess) and must not be changed", "leave sharing out")
    if target.is_share:
        raise sharing.refused(
            f"{device} is a share, and others have the rest of the GPU",
            "leave sharing out and write the share's size as capacity of the request (memory, compute), or select a "
            "GPU that its rule does not share",
        )
    if sharing.strategy is SharingStrategy.TIME_SLICING and target.kind == DeviceKind.MIG:
        raise sharing.refused(f"{device} is a MIG device, which has no time slice of its own", "leave sharing out")
    if target.capability is not None and target.capability < _VOLTA:
        age = f"{device} has compute capability {target.capability[0]}.{target.capability[1]}"
        if sharing.strategy is SharingStrategy.TIME_SLICING:
            raise sharing.refused(f"{age}, and time slices can be set from 7.0 on", "leave sharing out")
        if sharing.is_limited:
            raise sharing.refused(f"{age}, and MPS limits its clients from 7.0 on", "leave the limits out")


def check_one_daemon(sections: Sequence[SharingParameters]) -> None:
    """Raise ``ParameterError`` for different MPS sections in one claim, which has one daemon for all its devices."""
    for section in sections[1:]:
        if replace(section, place="") != replace(sections[0], place=""):
            raise section.refused(
                f"the claim has another section for MPS ({sections[0].place}), and it gets one control daemon",
                "write one such section for all requests that share by MPS, or a claim for each",
            )


def check_one_limit(shared: Mapping[str, Sequence[tuple[str, Amounts]]]) -> None:
    """Raise ``ClaimError`` for MPS shares whose limits one container cannot have together.

    ``shared``: by request, pairs of a device and what a share takes of it.
    """
    fix = "write one request with a count and one capacity, or a claim for each"
    if len(shared) > 1:
        raise ClaimError(
            f"requests {', '.join(shared)} all have shares by MPS, and a container of the whole claim can have the "
            f"limits of one of them only; {fix}"
        )
    for request, shares in shared.items():
        sizes: dict[str, list[Amounts]] = {}
        for device, amounts in shares:
            sizes.setdefault(device, []).append(amounts)
        if len({tuple(sorted(total(each).items())) for each in sizes.values()}) > 1:
            raise ClaimError(
                f"request {request}: its shares by MPS take different amounts of {', '.join(sizes)}, and a client of "
                f"MPS has one limit for all its devices; {fix}"
            )


def own_sharing(config: AllocatedConfig, content: Json, *, mig: bool) -> SharingParameters:
    """The section in our own spelling; ``mig``: of a ``MigConfig``. Raises ``ParameterError``."""

    def refusal(field: str, found: str, fix: str) -> ParameterError:
        return ParameterError(config.labelled_place, field, found, fix)

    if not isinstance(content, dict):
        raise refusal("sharing", f"{shown(content)} is not an object", "write an object with strategy")
    strategies = (SharingStrategy.MPS,) if mig else tuple(SharingStrategy)
    said = content.get("strategy")
    strategy = next((each for each in strategies if each == said), None)
    if strategy is None:
        raise refusal("sharing.strategy", missing_or(said), f"write {' or '.join(strategies)}")
    fields = _FIELDS[strategy]
    for key in content:
        if key != "strategy" and key not in fields:
            known = ", ".join(fields)
            raise refusal(f"sharing.{shown_key(key)}", f"strategy {strategy} has no such field", f"it has {known}")
    interval, percentage, limit, limits, multi = (
        content.get(name) for name in ("interval", *_FIELDS[SharingStrategy.MPS])
    )
    words = {length.name.lower(): length for length in TimeSlice}
    return SharingParameters(
        config.labelled_place,
        strategy,
        str(strategy),
        time_slice_of(refusal, "sharing.interval", interval, words),
        percentage_of(refusal, "sharing.threadPercentage", percentage),
        memory_of(refusal, "sharing.memoryLimit", limit),
        memories_of(refusal, "sharing.memoryLimits", limits),
        multi_user_of(refusal, "sharing.multiUser", multi),
    )


def time_slice_of(refusal: Refusal, field: str, content: Json, words: Mapping[str, TimeSlice]) -> TimeSlice:
    """The time slice with this name; the default one without a name."""
    if content is None:
        return TimeSlice.DEFAULT
    if not isinstance(content, str) or content not in words:
        raise refusal(field, missing_or(content), f"write one of {', '.join(words)}")
    return words[content]


def percentage_of(refusal: Refusal, field: str, content: Json) -> int | None:
    """A percentage of threads; None for none."""
    if content is None:
        return None
    if isinstance(content, bool) or not isinstance(content, int) or not 1 <= content <= 100:
        raise refusal(field, f"{shown(content)} is no percentage", "write a whole number from 1 to 100")
    return content


def memory_of(refusal: Refusal, field: str, content: Json) -> int | None:
    """An amount of memory in bytes; None for none."""
    from scheduling.api.quantities import QuantityError, parse  # Only sharing needs it.

    if content is None:
        return None
    fix = "write a quantity of at least 1Mi, as 10Gi; MPS counts whole MiB"
    if isinstance(content, bool) or not isinstance(content, str | int):
        raise refusal(field, f"{shown(content)} must be an amount of memory", fix)
    try:
        amount = int(parse(str(content)).value())
    except QuantityError as error:
        raise refusal(field, f"{shown(content)} must be an amount of memory", fix) from error
    if amount < _MIB:
        raise refusal(field, f"{shown(content)} is less than a MiB", fix)
    return amount


def memories_of(refusal: Refusal, field: str, content: Json) -> tuple[tuple[str, int], ...]:
    """Amounts of memory by UUID or number of a device; null is as if it were absent."""
    if content is None:
        return ()
    if not isinstance(content, dict):
        raise refusal(field, f"{shown(content)} is not an object", "write limits by UUID or number of the device")
    found = ((key, memory_of(refusal, f"{field}.{shown_key(key)}", each)) for key, each in content.items())
    return tuple((key, limit) for key, limit in found if limit is not None)


def multi_user_of(refusal: Refusal, field: str, content: Json) -> bool:
    """True or false; false for null."""
    return content is not None and truth_of(refusal, field, content)
