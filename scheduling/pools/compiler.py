"""The claim compiler: a need of pools becomes the ResourceClaimTemplate that gets it now.

First the general form: each need is one request, whose alternatives have 1, 2, ... devices that each give an equal part
of the sums. If the allocator gives no node's devices for it but the pools' search finds a way, the exact form: the
devices of that way, grouped by what they give, one request for each group, so that the sums hold whichever devices of
the groups are taken.

What is promised is what the allocator gives for the very claim that is printed, so a promise can only be broken by
others who are faster. Several claims are compiled in their order, each for what the promises before it leave; nothing
is moved to make room, so another order can fit more or fewer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scheduling.allocator.allocator import Allocator
from scheduling.allocator.reading import NodeError, Object
from scheduling.api.versions import with_defaults
from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.claim_writer import ClaimWriter, CompilerInput
from scheduling.pools.lost import Lost
from scheduling.pools.published import ledger_of
from scheduling.pools.reading import title_of
from scheduling.pools.resource_claims import NamedRequest, claim_metadata, claim_spec, option_name
from scheduling.pools.resource_slices import V1
from scheduling.pools.search import MOST_STEPS, MOST_STEPS_IN_ALL, PoolSearch, PoolSolution
from scheduling.pools.ways import SearchSteps

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class PromisedDevice:
    """A device that the claim gets, for which request; `amounts` as it consumes them."""

    request: str
    driver: str
    pool: str
    device: str
    amounts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompiledClaim:
    """What to apply, and what it would get now: `allocation` on `node`, or nothing on any (both None).

    `exact`: it names amounts of devices that are there now, because no general form fits.
    """

    template: Json
    node: str | None
    allocation: Object | None = None
    lost: tuple[Lost, ...] = ()
    exact: bool = False

    @property
    def devices(self) -> tuple[PromisedDevice, ...]:
        """The devices that it would get."""
        return () if self.allocation is None else _promised(self.allocation)


def compile_claims(
    claims: Iterable[DeviceClaim], cluster: CompilerInput, nodes: Iterable[str] | None = None
) -> Iterator[CompiledClaim]:
    """The templates for several claims, each promised what those before it leave. Arguments are `compile_claim`'s."""
    names = None if nodes is None else list(nodes)
    held: Object | None = None
    for number, claim in enumerate(claims):
        cluster = cluster if held is None else cluster.after(held)
        compiled = compile_claim(claim, cluster, names)
        yield compiled
        made = claim_of(compiled.template, f"promised-{number}")
        held = None if compiled.allocation is None else {**made, "status": {"allocation": compiled.allocation}}


def compile_claim(claim: DeviceClaim, cluster: CompilerInput, nodes: Iterable[str] | None = None) -> CompiledClaim:
    """The template for a claim; `nodes`: only these may be promised (default: all that are not cordoned).

    Raises LeftOut for a need that v1 cannot say, MatchingError and FatalError for one that fails, SearchGaveUp.
    """
    names = cluster.schedulable if nodes is None else list(nodes)
    compiler = ClaimWriter(cluster, f"DeviceClaim {title_of(claim)}")
    requests = compiler.general(claim)
    spec = claim_spec(requests, compiler.matches(claim, claim.spec.match_attributes, requests))
    general = _template(claim, spec)
    found = _promise(general, cluster, names, requests)
    if found is not None:
        return CompiledClaim(general, *found, compiler.lost)
    for node, solution in _solutions(claim, cluster, names):
        exact = _template(claim, compiler.exact(claim, solution))
        promised = _promise(exact, cluster, [node], ())
        if promised is not None:
            return CompiledClaim(exact, *promised, compiler.lost_anyway, exact=True)
    return CompiledClaim(general, None, None, compiler.lost)


def _template(claim: DeviceClaim, spec: Json) -> Json:
    metadata = claim_metadata(claim)
    return {"apiVersion": V1, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": spec}}


def claim_of(template: Object, name: str = "") -> Object:
    """The claim that a template makes, with the API server's defaults."""
    metadata = {**template["metadata"], **({"name": name} if name else {})}
    body = {"apiVersion": V1, "kind": "ResourceClaim", "metadata": metadata, "spec": template["spec"]["spec"]}
    return with_defaults(body)


def _promise(
    template: Object, cluster: CompilerInput, nodes: Sequence[str], requests: Sequence[NamedRequest]
) -> tuple[str, Object] | None:
    """The node and the allocation that the allocator gives: the node with the most preferred options, then by name."""
    allocator = Allocator(
        [claim_of(template)], cluster.allocated, cluster.class_objects, cluster.index, cluster.features
    )
    objects = {str(each["metadata"]["name"]): each for each in cluster.nodes}
    best: tuple[tuple[int, ...], str, Object] | None = None
    for name in nodes:
        try:
            results = allocator.allocate(objects.get(name, {"metadata": {"name": name}}))
        except NodeError:
            continue
        if results is None:
            continue
        chosen = {each.request for each in _promised(results[0])}
        rank = tuple(_rank(each, chosen) for each in requests)
        if best is None or rank < best[0]:
            best = (rank, name, results[0])
        if not any(rank):
            break
    return None if best is None else best[1:]


def _promised(allocation: Object) -> tuple[PromisedDevice, ...]:
    return tuple(
        PromisedDevice(
            each["request"], each["driver"], each["pool"], each["device"], dict(each.get("consumedCapacity", {}))
        )
        for each in allocation["devices"].get("results", ())
    )


def _rank(request: NamedRequest, chosen: Collection[str]) -> int:
    """The number of the option that a request got. `chosen`: the names of requests in the allocation."""
    names = (f"{request.name}/{option_name(number)}" for number in range(len(request.options)))
    return next((number for number, name in enumerate(names) if name in chosen), 0)


def _solutions(claim: DeviceClaim, cluster: CompilerInput, nodes: Sequence[str]) -> Iterable[tuple[str, PoolSolution]]:
    """What the pools' search finds, node by node. Raises SearchGaveUp."""
    together = SearchSteps(MOST_STEPS_IN_ALL)
    for node in nodes:
        pools = sorted(
            (each for each in cluster.pools if each.is_at(node)), key=lambda each: each.document.metadata.name
        )
        found = PoolSearch(ledger_of(pools), eligible=cluster.classes.is_eligible).run(
            [claim], cluster.classes.documents, SearchSteps(MOST_STEPS, together)
        )
        if found is not None:
            yield node, found
