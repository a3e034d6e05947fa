"""Writes the requests of a compiled claim: in general, or for devices like those of one way to meet the needs.

Every request says no less than its need: classes, constraints and matching attributes as the slices name them, and so
much of each amount from each device that the sums hold. What v1 cannot say raises LeftOut.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.pools import Features, SliceIndex
from scheduling.allocator.reading import Object
from scheduling.api.excerpts import excerpt
from scheduling.api.quantities import Quantity
from scheduling.pools.claim_documents import DeviceClaim, DeviceClaimDetail
from scheduling.pools.documents import PoolDeviceClass
from scheduling.pools.flat_cel import SliceName, UntranslatableConstraint, selector_of
from scheduling.pools.live_names import ClassMembers, LiveNames, written_class
from scheduling.pools.lost import LeftOut, Losses, Lost
from scheduling.pools.matching import candidate_classes, has_admin_access
from scheduling.pools.publication import published_pools
from scheduling.pools.published import PublishedPool, ledger_of
from scheduling.pools.published_classes import ClusterClasses
from scheduling.pools.resource_claims import (
    ADMIN_ONCE,
    ADMIN_WITH_COUNTERS,
    MOST_DEVICES,
    NamedRequest,
    RequestOption,
    add_unsaid,
    claim_spec,
    listed,
    named_requests,
    requests_in,
    share_of,
)
from scheduling.pools.search import ChosenDevice, MetNeed, PoolSolution

PART: Final = "-part-"
"""Between the name of a need and the number of a group, in the names of requests of the exact form."""
Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class CompilerInput:
    """A cluster: its pools, the classes that needs can name, and what the allocator works on.

    `claims`: those of the cluster, of which the allocated ones hold devices. `class_objects`: the v1 classes by name.
    `made_classes`: those of them that the cluster does not have, because needs bring them as documents.
    """

    index: SliceIndex
    claims: tuple[Object, ...]
    nodes: tuple[Object, ...]
    features: Features
    pools: tuple[PublishedPool, ...]
    classes: ClusterClasses
    class_objects: Mapping[str, Object]
    made_classes: tuple[Object, ...]
    allocated: AllocatedState

    @classmethod
    def of(
        cls,
        index: SliceIndex,
        classes: Iterable[Object] = (),
        *,
        written: Iterable[PoolDeviceClass] = (),
        claims: Iterable[Object] = (),
        nodes: Iterable[Object] = (),
        features: Features = Features(),  # noqa: B008 - a frozen value
    ) -> CompilerInput:
        """The input from v1 objects; `written`: the documents of classes.

        Raises LeftOut for a written class that v1 cannot say, and FatalError.
        """
        known, documents, held, all_nodes = tuple(classes), tuple(written), tuple(claims), tuple(nodes)
        pools = published_pools(index, held, all_nodes, features)
        made = tuple(written_class(each, pools) for each in documents)
        return cls(
            index,
            held,
            all_nodes,
            features,
            pools,
            ClusterClasses(known, pools, features, documents),
            {str(each["metadata"]["name"]): each for each in (*known, *made)},
            made,
            AllocatedState.of_claims(held),
        )

    def after(self, claim: Object) -> CompilerInput:
        """The cluster with one more allocated claim."""
        claims = (*self.claims, claim)
        pools = published_pools(self.index, claims, self.nodes, self.features)
        return replace(self, claims=claims, pools=pools, allocated=AllocatedState.of_claims(claims))

    @property
    def node_names(self) -> list[str]:
        """All nodes that pools are on, and those known as objects."""
        named = {str(each["metadata"]["name"]) for each in self.nodes}
        return sorted(named | {name for pool in self.pools for name in pool.nodes})

    @property
    def schedulable(self) -> list[str]:
        """The nodes that are not cordoned."""
        cordoned = {
            str(each["metadata"]["name"]) for each in self.nodes if (each.get("spec") or {}).get("unschedulable")
        }
        return [name for name in self.node_names if name not in cordoned]


class ClaimWriter:
    """Writes requests for the needs of one claim."""

    def __init__(self, cluster: CompilerInput, document: str) -> None:
        self._cluster = cluster
        self._losses = Losses(document)
        self._narrowed = Losses(document)
        pools = {each.document.metadata.name: each for each in cluster.pools}
        self._ledger = ledger_of(cluster.pools)
        self._published = {(name, each.name): each for name, pool in pools.items() for each in pool.devices}

    @property
    def lost_anyway(self) -> tuple[Lost, ...]:
        """What is lost in either form."""
        return tuple(self._losses.into)

    @property
    def lost(self) -> tuple[Lost, ...]:
        """What is lost in the general form."""
        return (*self._losses.into, *self._narrowed.into)

    def general(self, claim: DeviceClaim) -> list[NamedRequest]:
        """One request for each need. Raises LeftOut and MatchingError."""
        found = named_requests(claim, self._options, self._narrowed)
        if len(found) > 1 and any(option.admin for request in found for option in request.options):
            self._losses.add("spec.claims", ADMIN_ONCE)
        return found

    def _options(self, detail: DeviceClaimDetail, at: str) -> list[RequestOption]:
        members = self._sayable(detail, at)
        amounts = {name: amount for name, amount in detail.amounts.items() if amount.nanos}
        most = detail.most if amounts and not all(one.admin for one in members) else detail.least
        self._note(detail, at, members, amounts, most)
        found = []
        for count in range(detail.least, most + 1):
            for member in members:
                shares = {} if member.admin else {name: share_of(each, count) for name, each in amounts.items()}
                found.append((shares, self._option(detail, at, member, count, shares), member))
        # A part that no device has, free or not, would only make the claim longer.
        possible = [
            option
            for shares, option, member in found
            if all(share.nanos <= member.most_of(name) for name, share in shares.items())
        ]
        sayable = [option for _, option, _ in found if option.count <= MOST_DEVICES] or [found[-1][1]]
        return possible or sayable[-1:]

    def _sayable(self, detail: DeviceClaimDetail, at: str) -> list[ClassMembers]:
        """The classes through which v1 can say the need: of a type, some may lack an attribute or an amount."""
        found: list[ClassMembers] = []
        faults: list[LeftOut] = []
        shares = {name: amount for name, amount in detail.amounts.items() if amount.nanos}
        for member in self._candidates(detail, at):
            try:
                self._option(detail, at, member, 1, {} if member.admin else shares)
            except LeftOut as fault:
                faults.append(fault)
            else:
                found.append(member)
        if not found:
            raise faults[0]
        return found

    def _note(
        self,
        detail: DeviceClaimDetail,
        at: str,
        members: Sequence[ClassMembers],
        amounts: Mapping[str, Quantity],
        most: int,
    ) -> None:
        """What is lost of a need."""
        losses = self._losses
        add_unsaid(detail, at, losses)
        if any(each.document.requests for member in members if member.admin for each in member.devices):
            losses.add(f"{at}.adminAccess", ADMIN_WITH_COUNTERS)
        if amounts and most > 1:
            self._narrowed.add(
                f"{at}.requests", f"{listed(amounts)} is a sum over devices; v1 asks for an equal part of each"
            )
        if len(members) > 1 and most > 1:
            self._narrowed.add(at, "v1 cannot take the devices of one need from several classes")
        if not amounts and any(each.shareable for member in members for each in member.devices):
            losses.add(at, "v1 cannot ask for all of a device that can be shared; others may get parts of it")

    def _candidates(self, detail: DeviceClaimDetail, at: str) -> list[ClassMembers]:
        """The classes of a need that have devices; all of them where none has any."""
        classes = candidate_classes(detail, self._cluster.classes.documents)
        found = []
        for class_ in classes:
            name = class_.metadata.name
            found.append(replace(self._member(name), admin=has_admin_access(detail, class_)))
        return [each for each in found if each.devices] or found

    def _option(
        self, detail: DeviceClaimDetail, at: str, member: ClassMembers, count: int, shares: Mapping[str, Quantity]
    ) -> RequestOption:
        selectors = []
        if detail.constraints:
            try:
                selectors.append(_selector(selector_of(detail.constraints, member.names.find)))
            except UntranslatableConstraint as error:
                raise LeftOut(f"{at}.constraints", f"{excerpt(detail.constraints)}: {error}") from error
        matches = []
        for number, name in enumerate(detail.match_attributes):
            matches += self._full_names(member, name, f"{at}.matchAttributes[{number}]")
        asked, filters = self._amounts(member, at, shares)
        return RequestOption(member.name, "", count, (*selectors, *filters), asked, member.admin, tuple(matches))

    def _amounts(
        self, member: ClassMembers, at: str, shares: Mapping[str, Quantity]
    ) -> tuple[dict[str, str], list[dict[str, object]]]:
        """What is requested of each device: as capacity where devices can be shared, else by a selector."""
        asked: dict[str, str] = {}
        filters = []
        shared = self._cluster.features.consumable_capacity and any(each.shareable for each in member.devices)
        for name, share in shares.items():
            written = member.names.capacity(name)
            if written is None:
                known = sorted({one.name for each in member.devices for one in each.amounts})
                what = ", ".join(known) or "none"
                raise LeftOut(
                    f"{at}.requests.{name}", f"the devices of class {member.name} have no {name}; they have: {what}"
                )
            if shared:
                asked[written.written] = share.text
            else:
                filters.append(_at_least(written, share))
        return asked, filters

    def _full_names(self, member: ClassMembers, name: str, at: str) -> list[str]:
        full = member.names.full_names(name)
        if len(full) == 1:
            return list(full)
        if not full:
            known = member.names.known
            raise LeftOut(at, f"no device of class {member.name} has the attribute {name}; they have: {known}")
        raise LeftOut(at, f"v1 compares one name on all devices, and {name} is {' and '.join(sorted(full))}")

    def matches(self, claim: DeviceClaim, names: Sequence[str], requests: Sequence[NamedRequest]) -> list[str]:
        """The full names of what matches across a claim. Raises LeftOut."""
        used = {option.class_name for each in requests for option in each.options}
        found: list[str] = []
        for number, name in enumerate(names):
            at = f"spec.matchAttributes[{number}]"
            full = {one for class_name in sorted(used) for one in self._full_names(self._member(class_name), name, at)}
            if len(full) > 1:
                raise LeftOut(at, f"v1 compares one name on all devices, and {name} is {' and '.join(sorted(full))}")
            found += full
        return found

    def _member(self, name: str) -> ClassMembers:
        class_ = self._cluster.classes.documents[name]
        ours = [
            self._published[each.name]
            for each in self._ledger.devices.values()
            if self._cluster.classes.is_member(each, class_)
        ]
        return ClassMembers(name, tuple(ours), LiveNames(ours))

    def exact(self, claim: DeviceClaim, solution: PoolSolution) -> Json:
        """The spec that asks for devices like those of a solution."""
        requests: list[NamedRequest] = []
        constraints: list[Json] = []
        names: list[str] = []
        for number, instance in enumerate(claim.spec.claims):
            names += [name for name, _ in requests_in(number, instance, "", set(names))]
        for name, need in zip(names, solution.needs, strict=True):
            at = f"spec.claims[{need.instance}]"
            groups = self._groups(need, at)
            parts = [
                NamedRequest(name if len(groups) == 1 else f"{name}{PART}{number + 1}", (replace(each, matches=()),))
                for number, each in enumerate(groups)
            ]
            requests += parts
            matches = sorted({one for each in groups for one in each.matches})
            constraints += [{"requests": [each.name for each in parts], "matchAttribute": one} for one in matches]
        spec = claim_spec(requests, self.matches(claim, claim.spec.match_attributes, requests))
        devices = spec["devices"]
        devices["constraints"] = [*constraints, *devices.get("constraints", ())]
        if not devices["constraints"]:
            del devices["constraints"]
        return spec

    def _groups(self, need: MetNeed, at: str) -> list[RequestOption]:
        """The devices of a need by class and by what each gives, the most first."""
        amounts = [name for name, amount in need.detail.amounts.items() if amount.nanos]
        members = {each.name: each for each in self._candidates(need.detail, at)}
        counted: dict[tuple[str, tuple[tuple[str, Quantity], ...]], int] = {}
        for each in need.devices:
            key = (each.class_name, tuple(self._gives(each, amounts)))
            counted[key] = counted.get(key, 0) + 1
        ordered = sorted(counted.items(), key=lambda one: (not one[0][1], [-amount.nanos for _, amount in one[0][1]]))
        return [
            _without(
                self._option(need.detail, at, members[name], count, dict(gives)), members[name], amounts, dict(gives)
            )
            for (name, gives), count in ordered
        ]

    def _gives(self, chosen: ChosenDevice, amounts: Sequence[str]) -> Iterable[tuple[str, Quantity]]:
        """What a device gives: a part if it can be shared, else all that it has."""
        device = self._published[chosen.device.name]
        drawn = {each.name: each.allocation for each in chosen.amounts}
        for each in device.amounts:
            if each.name in amounts and each.name in drawn:
                yield each.name, drawn[each.name] if device.shareable else each.capacity


def _selector(expression: str) -> dict[str, object]:
    return {"cel": {"expression": expression}}


def _without(
    option: RequestOption, member: ClassMembers, amounts: Sequence[str], gives: Mapping[str, Quantity]
) -> RequestOption:
    """The option for devices that have none of the amounts that they do not give: others would have to give some."""
    missing = [where for name in amounts if name not in gives and (where := member.names.capacity(name)) is not None]
    selectors = (*option.selectors, *(_selector(f"!has({each.cel})") for each in missing))
    return option if option.admin else replace(option, selectors=selectors)


def _at_least(name: SliceName, share: Quantity) -> dict[str, object]:
    """The selector for devices that have so much of a capacity; false for one that lacks it."""
    return _selector(f"has({name.cel}) && {name.cel}.compareTo(quantity({json.dumps(share.text)})) >= 0")
