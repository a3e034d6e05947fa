"""The structured allocator: which devices claims get on a node.

It answers as the scheduler of Kubernetes 1.37 does: the same devices in the same order, the same configuration, the
same refusals and errors. Between calls it holds nothing but facts that it read once, so one allocator serves any number
of nodes and threads; making a result true is the caller's business.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

from scheduling.allocator.allocated import AllocatedState, ClaimLister
from scheduling.allocator.claims import RESULTS_MAX, Claim
from scheduling.allocator.classes import ClassLister
from scheduling.allocator.errors import FatalError, NodeError, ObjectReference
from scheduling.allocator.features import Features
from scheduling.allocator.planning import Planner
from scheduling.allocator.pools import SliceIndex, gather_pools, node_identity
from scheduling.allocator.problem import Availability, Problem
from scheduling.allocator.reading import Object
from scheduling.allocator.results import Result, allocation_result
from scheduling.allocator.search import Outcome, Search
from scheduling.allocator.selectors import Selectors


class Allocator:
    """Allocates one set of claims. Safe to call from several threads.

    The counterpart of NewAllocator, Allocate and ClaimsToAllocate of k8s.io/dynamic-resource-allocation/structured.
    """

    def __init__(
        self,
        claims_to_allocate: Iterable[Object],
        claim_lister: ClaimLister | AllocatedState,
        class_lister: ClassLister,
        slices: Iterable[Object] | SliceIndex,
        features: Features = Features(),  # noqa: B008 - a frozen value
        *,
        give_up: Callable[[], bool] | None = None,
        new_share: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        """All objects are v1, as plain data, with the API's defaults filled in.

        `claim_lister` says what is in use, itself or by listing allocated claims; it is asked once. `slices` can be an
        index made once for several allocators. `give_up` is asked during long searches; when it says so, `GaveUp` is
        raised. `new_share` makes the ids of shares. Raises `FatalError`.
        """
        self._claims_to_allocate = tuple(claims_to_allocate)
        self._claims = tuple(Claim(each) for each in self._claims_to_allocate)
        self._index = slices if isinstance(slices, SliceIndex) else SliceIndex(slices)
        self._features = features
        self._give_up = give_up
        self._new_share = new_share
        if isinstance(claim_lister, AllocatedState):
            allocated = claim_lister
        else:
            allocated = AllocatedState.of_claims(claim_lister.list_all_allocated())
        self._availability = Availability(allocated)
        self._selectors = Selectors(features)
        self._planner = Planner(self._claims, class_lister, features)

    @property
    def claims_to_allocate(self) -> tuple[Object, ...]:
        """The claims that the allocator was made for, as they were given."""
        return self._claims_to_allocate

    def allocate(self, node: Object) -> list[Result] | None:
        """The allocation results (v1 AllocationResult) for the claims on this node, in their order.

        None says that they do not fit there now. The node is a v1 Node; only its metadata matters. Raises `FatalError`
        if something is wrong on every node, `NodeError` if this one cannot say, `GaveUp` if patience ended.
        """
        problem = self.problem(node)
        search = Search(problem, self._give_up)
        outcome = search.run()
        if outcome is Outcome.DONE:
            solution = zip(problem.claims, search.chosen, search.placement.placed, strict=True)
            return [allocation_result(problem, claim, chosen, own, self._new_share) for claim, chosen, own in solution]
        if outcome is Outcome.LIMIT:
            message = f"whatever is chosen, the claim would hold more than {RESULTS_MAX} devices"
            raise FatalError(self._claims[0].reference, "spec.devices.requests", message)
        invalid = [f"pool {pool.id}: {pool.invalid_reason}" for pool in problem.pools if pool.is_invalid]
        if invalid:
            raise NodeError(ObjectReference("Node", problem.node), "", f"invalid resource pools: {'; '.join(invalid)}")
        return None

    def problem(self, node: Object) -> Problem:
        """The devices of a node and the plans of the claims for it, before any search. Raises `FatalError`."""
        pools = gather_pools(node, self._index, self._features)
        name, labels = node_identity(node)
        problem = Problem(
            name, labels, pools, availability=self._availability, selectors=self._selectors, features=self._features
        )
        problem.claims.extend(self._planner.plan(problem))
        return problem
