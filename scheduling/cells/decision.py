"""What the scheduler answers about one pod, and how it refuses a request.

An answer is one of three frozen values. A refused request raises `CellsUserError` and leaves the scheduler unchanged.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from scheduling.cells.pod import BindInfo


class Phase(enum.Enum):
    """The call of kube-scheduler that asks. Only the preempting phase reserves cells."""

    FILTERING = "Filtering"
    PREEMPTING = "Preempting"


class CellsUserError(ValueError):
    """A request that the user must change. `code` is the HTTP status that fits, 400 to 499."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True)
class PodPlaced:
    """The pod fits now. In the filtering phase the caller binds it and reports it with `add_allocated`.

    `affinity` is the type of the lowest cell that holds all of the pod's devices.
    """

    bind_info: BindInfo
    affinity: str = ""


@dataclass(frozen=True, slots=True)
class PodPreempting:
    """The pod fits once these pods are gone: all pods of the groups that use its cells, by node."""

    victims: Mapping[str, tuple[str, ...]]  # node -> UIDs, sorted


@dataclass(frozen=True, slots=True)
class PodWaiting:
    """The pod does not fit now. `reasons_by_node` names the nodes that were considered and cannot be used."""

    reason: str
    reasons_by_node: Mapping[str, str] = field(default_factory=dict)


Decision: TypeAlias = PodPlaced | PodPreempting | PodWaiting
