"""Which nodes are in the same situation, so that one of them is judged for all.

Two nodes are in the same situation if their devices differ in names alone, and in what the claims cannot see: a
selector reads certain attributes and no others, a constraint asks whether values are equal and not which they are, and
in which order devices are offered decides the choice, not whether there is one. Whatever might matter and is not
understood makes situations different: that costs time, never a wrong answer.

Where a selector reads something that is different for almost every device (a serial number), nodes are alike if it
answers alike, condition by condition; the shown values are then those of the first (``Situations.lumps``).
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from operator import itemgetter

from kube.bodies import JsonObject
from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.claims import Claim
from scheduling.allocator.constraints import as_values, lookup
from scheduling.allocator.node_selection import Labels
from scheduling.allocator.pools import node_identity
from scheduling.allocator.slices import PoolID, ResourceSlice, SliceDevice
from scheduling.cel.compiler import compile as compile_expression
from scheduling.cel.errors import CompileError
from scheduling.cel.program import Program
from scheduling.explain.cluster import Cluster
from scheduling.explain.screening import expressions

FEW = 64
"""Different things that an expression may read in the cluster before only its answers are compared."""


class Situations:
    """Tells situations of nodes apart for one set of claims."""

    def __init__(self, claims: Sequence[JsonObject], cluster: Cluster) -> None:
        """Find out what the claims can see of a device. Raises ``FatalError`` for claims that cannot be read."""
        facts = [Claim(claim) for claim in claims]
        requests = [one for fact in facts for choice in fact.requests for one in choice.alternatives]
        self._cluster = cluster
        texts = dict.fromkeys(text for one in requests for _, text in expressions(one, cluster))
        self._selectors = [_Selector(program, cluster) for text in texts if (program := _program(text, cluster))]
        rules = [rule for fact in facts for rule in fact.constraints]
        self._attributes = sorted({rule.attribute for rule in rules})
        self._generations: dict[PoolID, list[int]] = {}
        self._looks: dict[SliceDevice, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._capacities: dict[str, str] = {}

    @property
    def lumps(self) -> bool:
        """Whether nodes of one situation may show different values to a selector."""
        return any(not selector.by_values for selector in self._selectors)

    def of(self, node: JsonObject, allocated: AllocatedState | None = None) -> Hashable:
        """Equal for nodes in the same situation; ``allocated``: devices in use instead of the cluster's."""
        allocated = self._cluster.allocated if allocated is None else allocated
        name, labels = node_identity(node)
        mine: dict[PoolID, list[ResourceSlice]] = {}
        for each in self._cluster.index.for_node(name):
            if each.selects(name, labels):
                mine.setdefault(each.pool, []).append(each)
        others = {pool for pool in mine if any(one.nodes.name != name for one in self._cluster.index.of_pool(pool))}
        # Beside devices that other nodes have as well it matters which values a node's own devices have.
        values: dict[Hashable, int] | None = None if others else {}
        return tuple(
            _part_of(pool, mine[pool], name, labels)
            if pool in others
            else self._pool(pool, mine[pool], values, allocated)
            for pool in sorted(mine)
        )

    def _pool(
        self,
        pool: PoolID,
        slices: Sequence[ResourceSlice],
        values: dict[Hashable, int] | None,
        allocated: AllocatedState,
    ) -> Hashable:
        """A pool of the node's own."""
        of_pool = self._cluster.index.of_pool(pool)
        ages = self._generations.get(pool)
        if ages is None:
            ages = self._generations[pool] = sorted({one.generation for one in of_pool}, reverse=True)
        shapes = [(ages.index(one.generation), one.slice_count, len(one.devices)) for one in slices]
        if len({one.slice_count for one in slices}) == 1:
            # Slices that contradict each other count in their order.
            shapes.sort()
        counters = [(ages.index(one.generation), one.counter_sets) for one in slices if one.counter_sets]
        seen = [
            ((ages.index(one.generation), *self._device(device, allocated)), device)
            for one in slices
            for device in one.devices
        ]
        # The order of devices does not matter; values of constraints get numbers in an order that names do not decide.
        seen.sort(key=itemgetter(0))
        if self._attributes:
            devices = tuple((own, tuple(_number(one, name, values) for name in self._attributes)) for own, one in seen)
        else:
            devices = tuple((own, ()) for own, _ in seen)
        names = [device.name for one in slices for device in one.devices]
        unique = len(set(names)) == len(names)
        return (pool.driver, len(of_pool), tuple(shapes), unique, repr(counters), devices)

    def _device(
        self, device: SliceDevice, allocated: AllocatedState
    ) -> tuple[int, bool, bool, tuple[tuple[str, int], ...]]:
        """What decides about a device: its look, and what of it is in use; can be put in order."""
        look = self._looks.get(device)
        if look is None:
            look = self._looks[device] = self._numbers.setdefault(self._look(device), len(self._numbers))
        name = device.id
        shares = allocated.capacity.get(name)
        used = tuple(sorted(shares.items())) if shares else ()
        return (look, name in allocated.devices, name in allocated.partly, used)

    def _look(self, device: SliceDevice) -> Hashable:
        """What the claims see of a device whoever uses it."""
        taints, consumed = device.taints, device.consumed
        rules = self._cluster.rules
        return (
            tuple([selector.seen(device) for selector in self._selectors]),
            self._capacity(device),
            taints,
            tuple([rules.get((device.id, one.key, one.value, one.effect), "") for one in taints]) if taints else (),
            device.allows_multiple,
            bool(device.binding_conditions),
            tuple(sorted(consumed.items())) if consumed else (),
            device.slice.per_device,
        )

    def _capacity(self, device: SliceDevice) -> str:
        """A device's capacity as a text, equal in whatever order it is written; few devices differ in it."""
        capacity = device.raw("capacity")
        if not capacity:
            return ""
        written = repr(capacity)
        text = self._capacities.get(written)
        if text is None:
            text = self._capacities[written] = json.dumps(capacity, sort_keys=True, default=str)
        return text


def _part_of(pool: PoolID, slices: Sequence[ResourceSlice], node: str, labels: Labels) -> Hashable:
    """What a node has of a pool that other nodes have a part in: such a pool is like no other."""
    chosen = [
        device.name
        for one in slices
        if one.per_device is True
        for device in one.devices
        if device.selects(node, labels)
    ]
    return (pool, tuple(sorted(one.name for one in slices)), tuple(chosen))


def _program(text: str, cluster: Cluster) -> Program | None:
    try:
        return compile_expression(text, cluster.cel_features)
    except CompileError:
        # It fails for every device alike.
        return None


class _Selector:
    """What one expression sees of a device: the values that it reads, or its answers."""

    def __init__(self, program: Program, cluster: Cluster) -> None:
        self._program = program
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[SliceDevice, int] = {}
        self._answers: dict[Hashable, Hashable] = {}
        self.by_values = program.reads is not None
        for each in cluster.index.all:
            if not self.by_values:
                break
            for device in each.devices:
                number = self._numbers.setdefault(program.signature(device.cel), len(self._numbers))
                self._known[device] = number
            self.by_values = len(self._numbers) <= FEW
        if not self.by_values:
            self._known.clear()

    def seen(self, device: SliceDevice) -> Hashable:
        """Equal for devices that the expression cannot tell apart."""
        if self.by_values:
            return self._known[device]
        signature = self._program.signature(device.cel)
        if signature is None:
            return self._answer(device)
        if signature not in self._answers:
            self._answers[signature] = self._answer(device)
        return self._answers[signature]

    def _answer(self, device: SliceDevice) -> Hashable:
        outcomes = [each.outcome for each in self._program.account(device.cel)]
        return tuple(one if isinstance(one, bool) else str(one) for one in outcomes)


def _number(device: SliceDevice, attribute: str, values: dict[Hashable, int] | None) -> Hashable:
    """Values by the order in which the node's devices show them, or as they are; a list by those of its items."""
    found = lookup(device, attribute)
    held = None if found is None else as_values(found)
    if held is None:
        return found is not None
    if values is None:
        return (held.type, tuple(sorted(str(each) for each in held.values)))
    return tuple(sorted(values.setdefault((attribute, held.type, each), len(values)) for each in held.values))
