"""Which nodes are in the same situation, so that one of them is looked at for all.

Two nodes are in the same situation if their devices differ in names alone, and in what the claims cannot see: a
selector reads certain attributes and no others, a constraint asks whether values are equal and not which they are.
Whatever might matter and is not understood makes situations different: that costs time, never a wrong answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from driver.structured.attributes import as_values, lookup
from driver.structured.cel.compiler import compile as compile_expression
from driver.structured.cel.errors import CompileError
from driver.structured.claims import Claim
from driver.structured.node_selection import Labels
from driver.structured.pools import node_identity
from driver.structured.selectors import frozen, seen_of
from driver.structured.slices import Device, Slice
from kube.bodies import JsonObject
from ostler.explain.cluster import Cluster
from ostler.explain.selecting import expressions


class Situations:
    """Tells situations of nodes apart for one set of claims."""

    def __init__(self, claims: Sequence[JsonObject], cluster: Cluster) -> None:
        """Find out what the claims can see of a device. Raises ``FatalError`` for claims that cannot be read."""
        facts = [Claim(claim) for claim in claims]
        requests = [one for fact in facts for choice in fact.requests for one in choice.alternatives]
        self._cluster = cluster
        self._reads: frozenset[tuple[str, ...]] | None = frozenset()
        for request in requests:
            for _, expression in expressions(request, cluster):
                self._add(expression)
        rules = [rule for fact in facts for rule in fact.constraints]
        self._attributes = sorted({rule.match_attribute or rule.distinct_attribute or "" for rule in rules})
        self._generations: dict[Hashable, list[int]] = {}

    def _add(self, expression: str) -> None:
        try:
            reads = compile_expression(expression, self._cluster.cel_features).reads
        except CompileError:
            # It fails for every device alike.
            return
        self._reads = None if reads is None or self._reads is None else self._reads | reads

    def of(self, node: JsonObject) -> Hashable:
        """Equal for nodes in the same situation."""
        name, labels = node_identity(node)
        mine = [each for each in self._cluster.index.for_node(name) if each.selects(name, labels)]
        mine.sort(key=lambda each: (each.pool, each.name))
        numbers: dict[Hashable, int] = {}
        values: dict[Hashable, int] = {}
        names: dict[Hashable, int] = {}
        return tuple(self._slice(each, name, labels, (numbers, values, names)) for each in mine)

    def _slice(self, each: Slice, node: str, labels: Labels, seen: tuple[dict[Hashable, int], ...]) -> Hashable:
        numbers, values, names = seen
        number = numbers.setdefault(each.pool, len(numbers))
        of_pool = self._cluster.index.of_pool(each.pool)
        own = bool(each.nodes.name) and all(one.nodes.name == node for one in of_pool)
        devices = tuple(
            (
                self._device(device),
                names.setdefault((each.pool, device.name), len(names)),
                tuple(_number(device, attribute, values) for attribute in self._attributes),
                each.per_device is not True or device.selects(node, labels),
            )
            for device in each.devices
        )
        generations = self._generations.get(each.pool)
        if generations is None:
            generations = sorted({one.generation for one in of_pool}, reverse=True)
            self._generations[each.pool] = generations
        counters = tuple((one, tuple(sorted(amounts.items()))) for one, amounts in each.counter_sets)
        # A pool that other nodes have a part in is not like any other.
        identity = (number,) if own else (number, each.pool, each.name)
        age = generations.index(each.generation)
        return (identity, each.pool.driver, age, each.slice_count, len(of_pool), counters, devices)

    def _device(self, device: Device) -> Hashable:
        allocated = self._cluster.allocated
        if self._reads is None:
            seen: Hashable = (device.id.driver, device.allows_multiple, frozen(device.attributes))
        else:
            seen = seen_of(device, self._reads)
        rules = tuple(
            self._cluster.rules.get((device.id, each.key, each.value, each.effect), "") for each in device.taints
        )
        return (
            seen,
            frozen(device.raw("capacity")) if device.raw("capacity") else (),
            device.taints,
            rules,
            device.allows_multiple,
            bool(device.binding_conditions),
            tuple(sorted(device.consumed.items())),
            device.id in allocated.devices,
            device.id in allocated.partly,
            _amounts(allocated.capacity.get(device.id)),
        )


def _amounts(capacity: Mapping[str, int] | None) -> Hashable:
    return tuple(sorted(capacity.items())) if capacity else ()


def _number(device: Device, attribute: str, values: dict[Hashable, int]) -> Hashable:
    """Values by the order in which the node's devices show them; a list by those of its items."""
    found = lookup(device, attribute)
    held = None if found is None else as_values(found)
    if held is None:
        return found is not None
    return tuple(sorted(values.setdefault((attribute, held.type, each), len(values)) for each in held.values))
