"""The faults that can keep a driver's resources from being published as wanted.

The controller passes all of them to its error handler, and none ends it. Faults of requests are passed unchanged, as
``kube.errors.RequestError``. ``disabled_features`` guesses from counts which feature gates are off: if a gate is off,
the server drops whole fields, changes none, and does not mention it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from kube.bodies import Json, JsonObject, object_at
from scheduling.api.validation.cause import StatusCause

_SHOWN_CAUSES = 3


class SlicesError(Exception):
    """Any fault of this package."""


class WrongPools(SlicesError):
    """The controller of one pool was given other pools; what it published before stays."""

    def __init__(self, wanted: str, given: Sequence[str]) -> None:
        names = ", ".join(sorted(given)[:_SHOWN_CAUSES])
        super().__init__(
            f"this controller publishes pool {wanted} alone and was given {len(given)} pools ({names}); "
            f"give it {wanted}, or none"
        )
        self.wanted = wanted
        self.given = tuple(given)


class InvalidPool(SlicesError):
    """The slices of a pool contradict each other; nothing of the pool is written until it is corrected.

    ``field`` is the path in the pool (``slices[1].devices[0].name``).
    """

    def __init__(self, pool: str, field: str, problem: str) -> None:
        super().__init__(f"pool {pool}: {field}: {problem}")
        self.pool = pool
        self.field = field
        self.problem = problem


class InvalidSlice(SlicesError):
    """One slice breaks rules of the API and is not sent; ``causes`` say where and how, in the server's terms."""

    def __init__(self, pool: str, index: int, causes: Sequence[StatusCause]) -> None:
        shown = "; ".join(str(cause) for cause in causes[:_SHOWN_CAUSES])
        more = len(causes) - _SHOWN_CAUSES
        super().__init__(f"pool {pool}, slice {index}: {shown}{f'; and {more} more faults' if more > 0 else ''}")
        self.pool = pool
        self.index = index
        self.causes = tuple(causes)


class GenerationExhausted(SlicesError):
    """A pool needs a higher generation, but its generation is the highest possible number."""

    def __init__(self, pool: str, generation: int) -> None:
        super().__init__(
            f"pool {pool}: spec.pool.generation: {generation} is the highest there is and this change needs a higher "
            "one; delete the pool's slices, and it begins at 1 again"
        )
        self.pool = pool
        self.generation = generation


class NodeWithoutUid(SlicesError):
    """The Node that owns the slices was read without a uid."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"Node {node}: metadata.uid is missing in the API server's answer; slices need it to name their owner"
        )
        self.node = node


class DroppedFieldsError(SlicesError):
    """The API server stored a slice without some of its fields, most likely because their features are off.

    The controller works with what was stored, and does not send the fields again until the slice changes or the
    controller restarts. ``desired_slice`` and ``actual_slice`` are whole v1 objects.
    """

    def __init__(self, pool_name: str, slice_index: int, desired_slice: JsonObject, actual_slice: JsonObject) -> None:
        features = ", ".join(disabled_features(desired_slice, actual_slice)) or "unknown"
        super().__init__(
            f"pool {pool_name}, slice {slice_index}: the API server stored it without some fields; features that are "
            f"probably off: {features}; turn them on, or do not publish what needs them"
        )
        self.pool_name = pool_name
        self.slice_index = slice_index
        self.desired_slice = desired_slice
        self.actual_slice = actual_slice

    def disabled_features(self) -> tuple[str, ...]:
        """The feature gates that explain what is missing; empty if no known gate does."""
        return disabled_features(self.desired_slice, self.actual_slice)


Spec = JsonObject
Test = Callable[[Spec, Spec], bool]


def disabled_features(desired: JsonObject, actual: JsonObject) -> tuple[str, ...]:
    """The gates, by upstream's names, whose fields the ``desired`` object has and the ``actual`` one lacks."""
    wanted, stored = object_at(desired, "spec"), object_at(actual, "spec")
    return tuple([gate for gate, lost in _GATES if lost(wanted, stored)])


def _size(part: Json, field: str) -> int:
    found = part.get(field) if isinstance(part, dict) else None
    return len(found) if isinstance(found, list | dict | str) else 0


def _pairs(wanted: JsonObject, stored: JsonObject, field: str) -> Iterator[tuple[Any, Any]]:
    ours, theirs = wanted.get(field), stored.get(field)
    if isinstance(ours, list) and isinstance(theirs, list):
        yield from zip(ours, theirs, strict=False)


def _fewer(field: str) -> Test:
    """Whether a device has fewer entries in a field."""
    return lambda wanted, stored: any(
        _size(ours, field) > _size(theirs, field) for ours, theirs in _pairs(wanted, stored, "devices")
    )


def _smaller(field: str) -> Test:
    """Whether the slice has fewer entries, or a shorter text, in a field."""
    return lambda wanted, stored: _size(wanted, field) > _size(stored, field)


def _unset(field: str) -> Test:
    """Whether a device has lost a field."""
    return lambda wanted, stored: any(
        ours.get(field) is not None and theirs.get(field) is None
        for ours, theirs in _pairs(wanted, stored, "devices")
        if isinstance(ours, dict) and isinstance(theirs, dict)
    )


def _partitions(wanted: Spec, stored: Spec) -> bool:
    per_device = bool(wanted.get("perDeviceNodeSelection")) and not stored.get("perDeviceNodeSelection")
    return per_device or _smaller("sharedCounters")(wanted, stored) or _fewer("consumesCounters")(wanted, stored)


def _bindings(wanted: Spec, stored: Spec) -> bool:
    fields = ("bindingConditions", "bindingFailureConditions")
    return any(_fewer(field)(wanted, stored) for field in fields) or _unset("bindsToNode")(wanted, stored)


def _lists(wanted: Spec, stored: Spec) -> bool:
    for ours, theirs in _pairs(wanted, stored, "devices"):
        facts = object_at(theirs, "attributes")
        for name, fact in object_at(ours, "attributes").items():
            if any(_size(fact, kind) and not _size(facts.get(name), kind) for kind in _LISTS):
                return True
    return False


def _groups(wanted: Spec, stored: Spec) -> bool:
    return any(
        _size(use, "compatibilityGroups") > _size(other, "compatibilityGroups")
        for ours, theirs in _pairs(wanted, stored, "devices")
        if isinstance(ours, dict) and isinstance(theirs, dict)
        for use, other in _pairs(ours, theirs, "consumesCounters")
    )


_LISTS: Final = ("ints", "bools", "strings", "versions")
_GATES: Final[tuple[tuple[str, Test], ...]] = (
    ("DRADeviceTaints", _fewer("taints")),
    ("DRAPartitionableDevices", _partitions),
    ("DRADeviceBindingConditions", _bindings),
    ("DRAConsumableCapacity", _unset("allowMultipleAllocations")),
    ("DRAListTypeAttributes", _lists),
    ("DRANodeAllocatableResources", _fewer("nodeAllocatableResourceMappings")),
    ("DRAPartitionableDevicesType", _smaller("partitionTypeAttribute")),
    ("DRAOptionalNodeOperations", _smaller("skipNodeOperations")),
    ("DRADeviceCompatibilityGroups", _groups),
)
