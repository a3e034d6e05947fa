"""What nodes have beside devices for claims: processors, memory, number of pods, devices of device plugins.

A pod's requests are summed up as the scheduler sums them: containers and sidecars run together, an ordinary init
container runs beside the sidecars that were started before it, and the pod's own resources take the place of their sum.
Only what a node's ``status.allocatable`` names is counted. A resource of Kubernetes' own that it does not name is
unknown, not absent, because a snapshot has none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube.bodies import Json, JsonObject, object_at, text_at
from scheduling.api.quantities import Quantity, QuantityError, of_json
from scheduling.explain.amounts import quantity_of
from scheduling.explain.extended import is_extended
from scheduling.explain.nodes import ENDED, Hindrance, HindranceKind
from scheduling.explain.state import objects_at

PODS = "pods"
_OF_POD = ("cpu", "memory")
"""Resources that a pod can request as a whole, beside huge pages."""

Needs = Mapping[str, int]
"""Resource -> billionths."""


def needs_of(pod: JsonObject) -> Needs:
    """Everything that a pod takes of a node by requests; a limit alone is a request as well."""
    total: dict[str, int] = {}
    for container in objects_at(pod, "spec", "containers"):
        _add(total, _requested(container))
    sidecars: dict[str, int] = {}
    first: dict[str, int] = {}
    for container in objects_at(pod, "spec", "initContainers"):
        own = _requested(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, own)
            own = {}
        together = dict(sidecars)
        _add(together, own)
        _raise(first, together)
    _add(total, sidecars)
    _raise(total, first)
    whole = _requested(object_at(pod, "spec"))
    total |= {name: nanos for name, nanos in whole.items() if name in _OF_POD or name.startswith("hugepages-")}
    _add(total, _amounts(object_at(pod, "spec", "overhead")))
    return {**{name: nanos for name, nanos in total.items() if nanos > 0}, PODS: 10**9}


def is_running(pod: JsonObject) -> bool:
    """Whether a pod is on a node and has not ended."""
    return bool(text_at(pod, "spec", "nodeName")) and text_at(pod, "status", "phase") not in ENDED


class NodeRoom:
    """What is left on one node."""

    def __init__(self, node: JsonObject) -> None:
        self.total = {name: of_json(value) for name, value in _quantities(object_at(node, "status", "allocatable"))}
        self._left = {name: amount.nanos for name, amount in self.total.items()}

    def take(self, needs: Needs) -> bool:
        """Subtract a pod's needs; whether anything of them is counted here."""
        counted = [name for name in needs if self._counts(name)]
        for name in counted:
            self._left[name] -= needs[name]
        return bool(counted)

    def lacks(self, needs: Needs) -> bool:
        """Whether something that is counted here is not left."""
        return any(needs[name] > self._left[name] for name in needs if self._counts(name))

    def hindrances(self, needs: Needs) -> tuple[Hindrance, ...]:
        """The same in words, which name no node."""
        return tuple(
            Hindrance(HindranceKind.RESOURCE, self._short(name, needs[name]))
            for name in sorted(needs)
            if self._counts(name) and needs[name] > self._left[name]
        )

    def _counts(self, name: str) -> bool:
        """An extended resource that no device plugin offers is a claim's, or the node is refused for it anyway."""
        return name in self.total and (bool(self.total[name].nanos) or not is_extended(name))

    def _short(self, name: str, wanted: int) -> str:
        total = self.total[name]
        left = quantity_of(max(self._left[name], 0), total.format)
        if name == PODS:
            many = "pod" if total.nanos == 10**9 else "pods"
            return f"the node takes {total.text} {many} at a time, and has as many"
        return f"the pod asks for {quantity_of(wanted, total.format)} {name}, the node has {left} of {total.text} left"


def uncounted(needs: Needs, rooms: Iterable[NodeRoom]) -> tuple[str, ...]:
    """The resources of Kubernetes' own that are requested and that some node does not tell of."""
    own = [name for name in needs if not is_extended(name) and name != PODS]
    known = [room.total for room in rooms]
    return tuple(sorted(name for name in own if any(name not in total for total in known)))


def _requested(part: JsonObject) -> dict[str, int]:
    limits, requests = object_at(part, "resources", "limits"), object_at(part, "resources", "requests")
    return _amounts({**limits, **requests})


def _amounts(listed: JsonObject) -> dict[str, int]:
    return {name: of_json(value).nanos for name, value in _quantities(listed)}


def _quantities(listed: JsonObject) -> list[tuple[str, Json]]:
    """Without what is no quantity: the API server would not have it."""
    return [(name, value) for name, value in listed.items() if _read(value) is not None]


def _read(value: Json) -> Quantity | None:
    try:
        return of_json(value)
    except QuantityError:
        return None


def _add(to: dict[str, int], more: Mapping[str, int]) -> None:
    for name, nanos in more.items():
        to[name] = to.get(name, 0) + nanos


def _raise(to: dict[str, int], least: Mapping[str, int]) -> None:
    for name, nanos in least.items():
        to[name] = max(to.get(name, 0), nanos)
