"""The rest of the cluster: API server, scheduler, claim controller, taint eviction, and who makes pods anew.

What each of them sees is late by so much as ``Lags`` says, so that they decide by what is not true any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kube.bodies import JsonObject
from tests.making.virtual_time import VirtualLoop
from tests.model import hardware
from tests.model.objects import Allocated, ModelAsk, ModelClaim, ModelPhase, ModelPod


@dataclass
class Lags:
    """Seconds."""

    listing: float = 0.01
    """From the plugin's list to the kubelet's view of it."""
    answering: float = 0.01
    """Of calls between the kubelet and us, each way."""
    reading: float = 0.05
    """Of a look at the kubelet."""
    status: float = 10.0
    """Between the kubelet's reports of what is allocatable."""
    slices: float = 0.1
    """From the decision to the slice in the API."""
    scheduler: float = 0.1
    """From the slice in the API to the scheduler's view."""
    binding: float = 0.1
    """From the claim's allocation to the pod's binding."""
    watch: float = 0.1
    """From a pod's change to our view of it."""
    api: float = 0.05
    """Of our questions to the API server."""
    grace: float = 1.0
    """In which containers end."""
    forgetting: float = 0.1
    """From the forced deletion of a pod to the kubelet's hearing of it."""
    starting: float = 0.0
    """From a pod's admission to its containers."""
    lingering: float = 2.0
    """In which those of pods end that were deleted by force."""


@dataclass(frozen=True)
class ModelSlice:
    """What the API has of our devices, in order: name and the effects of its taints."""

    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    left: tuple[tuple[str, int], ...] = ()
    """Percent of the compute that claims may consume, of every device that allows it."""

    def effects(self, device: str) -> tuple[str, ...]:
        return next((effects for name, effects in self.devices if name == device), ())


class ModelCluster:
    """``changed``: told of every pod that changes or goes (True), after the fact."""

    def __init__(self, loop: VirtualLoop, lags: Lags) -> None:
        self.loop = loop
        self.lags = lags
        self.up = True
        """Whether our agent can talk to the API server; all others always can."""
        self.pods: dict[str, ModelPod] = {}
        self.claims: dict[str, ModelClaim] = {}
        self.slice = ModelSlice()
        self.seen_slice = ModelSlice()
        """By the scheduler."""
        self.allocatable: dict[str, int] = {}
        """In the Node's status."""
        self.changed: Callable[[ModelPod, bool], None] = lambda *_: None
        self.bound: Callable[[ModelPod], None] = lambda _: None
        self.deleting: Callable[[ModelPod], None] = lambda _: None
        self.forced: Callable[[ModelPod], None] = lambda _: None
        self.evictions: list[tuple[float, ModelPod, str]] = []
        self.failures = 0
        self.numbers = 0
        self._scheduling = False
        self.percents: dict[str, int] = {}
        """What every share that a claim was ever given takes."""

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    # What people and controllers do

    def create(self, pod: ModelPod, *claims: ModelClaim) -> None:
        for claim in claims:
            self.claims[claim.name] = claim
        self.pods[pod.uid] = pod
        self.schedule_soon()

    def new_pod(self, asks: tuple[ModelAsk, ...], claims: tuple[ModelClaim, ...], *, controlled: bool) -> ModelPod:
        number = self.number()
        uid = f"00000000-0000-4000-8000-{number:012d}"
        pod = ModelPod(uid, f"pod-{number}", asks, tuple(claim.name for claim in claims), claims, controlled)
        self.create(pod, *claims)
        return pod

    def new_claim(
        self, kind: int, count: int = 1, *, admin: bool = False, shares: bool = False, template: bool = True
    ) -> ModelClaim:
        number = self.number()
        return ModelClaim(
            f"11111111-0000-4000-8000-{number:012d}", f"claim-{number}", kind, count, admin, shares, template
        )

    def delete(self, pod: ModelPod) -> None:
        if pod.deleted or pod.uid not in self.pods:
            return
        pod.deleted = True
        if pod.bound:
            self.changed(pod, False)
            self.deleting(pod)
        else:
            self.gone(pod)

    def delete_by_force(self, pod: ModelPod) -> None:
        """Without grace: the API server forgets it at once, whatever runs of it; the kubelet hears of that later."""
        if pod.uid not in self.pods:
            return
        if pod.bound:
            self.forced(pod)
        else:
            pod.deleted = True
        self.gone(pod)

    def gone(self, pod: ModelPod) -> None:
        """The kubelet is done with it, or nobody has ever seen it."""
        if self.pods.pop(pod.uid, None) is None:
            return
        if pod.bound:
            self.changed(pod, True)
        self._leave_claims(pod)
        if pod.controlled and (pod.evicted or pod.phase is ModelPhase.FAILED):
            self.loop.call_later(1.0, self._again, pod)

    def over(self, pod: ModelPod, phase: ModelPhase) -> None:
        """The kubelet reports that the pod has ended."""
        if pod.uid not in self.pods:
            return
        pod.phase = phase
        self.failures += phase is ModelPhase.FAILED
        self.changed(pod, False)
        self._leave_claims(pod)
        # Controllers and people delete what has ended.
        self.loop.call_later(2.0, self.delete, pod)

    def published(self, slice_: ModelSlice) -> None:
        """Our driver has written this."""
        if slice_ == self.slice:
            return
        self.slice = slice_
        self.loop.call_later(self.lags.scheduler, self._see, slice_)
        self.loop.call_later(self.lags.scheduler, self.evict)

    def reported(self, allocatable: dict[str, int]) -> None:
        """The kubelet has written the Node's status."""
        if allocatable != self.allocatable:
            self.allocatable = allocatable
            self.schedule_soon()

    # Controllers

    def evict(self) -> None:
        for device, effects in self.slice.devices:
            if "NoExecute" not in effects:
                continue
            for claim in list(self.claims.values()):
                if claim.admin or all(each.device != device for each in claim.allocation):
                    continue
                for uid in list(claim.reserved):
                    pod = self.pods.get(uid)
                    if pod is not None and not pod.deleted:
                        pod.evicted = True
                        self.evictions.append((self.loop.time(), pod, device))
                        self.delete(pod)

    def schedule_soon(self) -> None:
        if not self._scheduling:
            self._scheduling = True
            self.loop.call_later(0.05, self._schedule)

    def _schedule(self) -> None:
        self._scheduling = False
        for pod in list(self.pods.values()):
            if not pod.bound and not pod.deleted and not self._reserved_by(pod):
                self._place(pod)

    def _reserved_by(self, pod: ModelPod) -> bool:
        return any(pod.uid in self.claims[name].reserved for name in pod.claims if name in self.claims)

    def _place(self, pod: ModelPod) -> None:
        if not self._fits(pod):
            return
        chosen: dict[str, tuple[Allocated, ...]] = {}
        for name in pod.claims:
            claim = self.claims.get(name)
            if claim is None:
                return
            if not claim.allocation:
                found = self._choose(claim, [each.device for those in chosen.values() for each in those])
                if found is None:
                    return
                chosen[name] = found
        for name in pod.claims:
            claim = self.claims[name]
            claim.allocation = chosen.get(name, claim.allocation)
            claim.reserved.append(pod.uid)
        if pod.claims:
            self.loop.call_later(self.lags.binding, self._bind, pod)
        else:
            self._bind(pod)

    def _bind(self, pod: ModelPod) -> None:
        if pod.uid not in self.pods or pod.deleted or pod.bound:
            return
        pod.bound = True
        self.changed(pod, False)
        self.bound(pod)
        self.evict()

    def _fits(self, pod: ModelPod) -> bool:
        used: dict[str, int] = {}
        for each in [*(other for other in self.pods.values() if other.bound and not other.over), pod]:
            for resource, count in _needs(each):
                used[resource] = used.get(resource, 0) + count
        return all(used[resource] <= self.allocatable.get(resource, 0) for resource, _ in _needs(pod))

    def _choose(self, claim: ModelClaim, taken: list[str]) -> tuple[Allocated, ...] | None:
        found: list[Allocated] = []
        for name, effects in self.seen_slice.devices:
            if len(found) == claim.count:
                break
            if hardware.kind_of(name) != claim.kind or name in taken or (effects and not claim.admin):
                continue
            left = dict(self.seen_slice.left).get(name)
            if left is not None and not claim.admin:
                if found_share := self._share(claim, name, left):
                    found.append(found_share)
                continue
            others = [
                other
                for other in self.claims.values()
                if other is not claim
                and not (other.admin or claim.admin)
                and any(each.device == name for each in other.allocation)
            ]
            if others and not (claim.shares and all(other.shares for other in others)):
                continue
            found.append(Allocated(name, f"share-{claim.uid}" if claim.shares else ""))
        return tuple(found) if len(found) == claim.count else None

    def _share(self, claim: ModelClaim, name: str, left: int) -> Allocated | None:
        """A share of a device that claims consume, if the others leave enough of what the slice says."""
        for other in self.claims.values():
            if other is not claim and not other.admin:
                left -= sum(each.percent or left for each in other.allocation if each.device == name)
        if left < claim.percent:
            return None
        share = f"share-{claim.uid}-{len(self.percents)}"
        self.percents[share] = claim.percent
        return Allocated(name, share, claim.percent)

    def _see(self, slice_: ModelSlice) -> None:
        self.seen_slice = slice_
        self.schedule_soon()

    def _leave_claims(self, pod: ModelPod) -> None:
        for name in pod.claims:
            claim = self.claims.get(name)
            if claim is None:
                continue
            if pod.uid in claim.reserved:
                claim.reserved.remove(pod.uid)
            if not claim.reserved:
                claim.allocation = ()
                if claim.template:
                    del self.claims[name]
        self.schedule_soon()

    def _again(self, pod: ModelPod) -> None:
        claims = tuple(
            self.claims.get(claim.name)
            or self.new_claim(claim.kind, claim.count, admin=claim.admin, shares=claim.shares, template=claim.template)
            for claim in pod.wants
        )
        self.new_pod(pod.asks, claims, controlled=True)

    # What our agent asks

    def claim_body(self, name: str) -> JsonObject | None:
        claim = self.claims.get(name)
        return None if claim is None else claim.body

    def named(self) -> Iterator[JsonObject]:
        return (claim.body for claim in self.claims.values() if claim.allocation)


def _needs(pod: ModelPod) -> list[tuple[str, int]]:
    """What a pod takes of each resource: init containers come before the others, one after the other."""
    needs: dict[str, int] = {}
    for resource in dict.fromkeys(ask.resource for ask in pod.asks):
        mine = [ask for ask in pod.asks if ask.resource == resource]
        inits = max((ask.count for ask in mine if ask.ordinary), default=0)
        needs[resource] = max(inits, sum(ask.count for ask in mine if not ask.ordinary))
    return list(needs.items())
