"""What is the same for every node: slices, classes, what is allocated to whom, and what the scheduler can do.

Read once per answer. Slices carry the taints of DeviceTaintRules already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kube.bodies import JsonObject
from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.pools import Features, SliceIndex
from scheduling.allocator.slices import DeviceID
from scheduling.cel.environment import Features as CelFeatures
from scheduling.explain.diagnosis.holders import Holding, holdings
from scheduling.explain.diagnosis.releases import features_of
from scheduling.explain.diagnosis.taint_rules import TaintOf, apply
from scheduling.explain.kinds import name_of, objects_at
from scheduling.explain.state import State

Patience = Callable[[bool], Callable[[], bool]]
"""Begins a question to the allocator, True for "what if"; what it gives says whether to give that question up."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """``rules``: which DeviceTaintRule set a taint; ``holdings``: who has a device in use."""

    index: SliceIndex
    classes: Mapping[str, JsonObject]
    allocated: AllocatedState
    features: Features = field(default_factory=Features)
    holdings: Mapping[DeviceID, tuple[Holding, ...]] = field(default_factory=dict)
    rules: Mapping[TaintOf, str] = field(default_factory=dict)
    patience: Patience | None = None

    @property
    def cel_features(self) -> CelFeatures:
        """The features as selectors have them; they were stored when the API server admitted them."""
        return CelFeatures(self.features.consumable_capacity, self.features.list_attributes, stored=True)


def cluster_of(state: State, patience: Patience | None = None) -> Cluster:
    """The cluster of a state. Raises ``FatalError`` where an object is not of its shape."""
    features = features_of(state.server_version)
    tainted = apply(state.taint_rules, state.slices)
    allocated = _allocated(state.claims)
    return Cluster(
        index=SliceIndex(tainted.slices),
        classes={name_of(body): body for body in state.classes},
        allocated=AllocatedState.of_claims(allocated),
        features=features,
        holdings=holdings(allocated),
        rules=tainted.rules,
        patience=patience,
    )


def _allocated(claims: Sequence[JsonObject]) -> list[JsonObject]:
    return [claim for claim in claims if objects_at(claim, "status", "allocation", "devices", "results")]
