"""Rules for the requests of a claim, and for references to them (KEP-4381, alternatives KEP-4816)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scheduling.api.validation.bounds import distinct
from scheduling.api.validation.cause import Cause, invalid, not_supported, required
from scheduling.api.validation.gates import Gates
from scheduling.api.validation.names import class_name, label
from scheduling.api.validation.selectors import selectors
from scheduling.api.validation.taints import toleration

REQUESTS: Final = 32
_ALTERNATIVES: Final = 8

Request = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RequestNames:
    """The names that a claim's constraints, configuration and results may refer to."""

    alternatives: Mapping[str, frozenset[str]]
    """Names of requests, each with the names of its alternatives."""

    @staticmethod
    def of(requests: Sequence[Request]) -> RequestNames:
        """Return the names in a list of requests; of two with one name the last counts."""
        return RequestNames(
            {
                request.get("name", ""): frozenset(entry.get("name", "") for entry in request.get("firstAvailable", []))
                for request in requests
            }
        )

    def __contains__(self, reference: str) -> bool:
        """Tell whether `<request>` or `<request>/<alternative>` is there."""
        request, slash, alternative = reference.partition("/")
        return request in self.alternatives and (not slash or alternative in self.alternatives[request])

    def judge(self, reference: str, path: str) -> Iterator[Cause]:
        """A reference to a request, or to an alternative in one."""
        parts = reference.split("/")
        if len(parts) <= 2:
            for part in parts:
                yield from label(part, path)
        if len(parts) > 2 or reference not in self:
            yield invalid(path, reference, "must be '<request>' or '<request>/<alternative>' of this claim")

    def judge_all(self, references: Sequence[str], path: str) -> Iterator[Cause]:
        """A list of references, none twice."""
        yield from distinct(references, REQUESTS, path, self.judge, key=str)


def request_rule(gates: Gates) -> Callable[[Request, str], Iterator[Cause]]:
    """Return the rule for a request of a claim."""

    def alternative(entry: Request, path: str) -> Iterator[Cause]:
        yield from label(entry.get("name", ""), f"{path}.name")
        yield from _devices(entry, path, gates)

    def request(entry: Request, path: str) -> Iterator[Cause]:
        yield from label(entry.get("name", ""), f"{path}.name")
        alternatives = entry.get("firstAvailable", [])
        if alternatives and "exactly" in entry:
            yield invalid(path, entry.get("name", ""), "must have exactly or firstAvailable, not both")
        elif alternatives:
            at = f"{path}.firstAvailable"
            yield from distinct(alternatives, _ALTERNATIVES, at, alternative, key=lambda each: each.get("name", ""))
        elif "exactly" in entry:
            yield from _devices(entry["exactly"], f"{path}.exactly", gates)
        else:
            yield required(path, "must have exactly or firstAvailable")

    return request


def _devices(request: Request, path: str, gates: Gates) -> Iterator[Cause]:
    """What an exact request and an alternative share: which devices, and how many."""
    yield from class_name(request.get("deviceClassName", ""), f"{path}.deviceClassName")
    yield from selectors(request.get("selectors", []), f"{path}.selectors", gates, stored=False)
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All":
        if count:
            yield invalid(f"{path}.count", count, "must be left out with allocationMode All")
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(f"{path}.count", count, "must be above zero")
    else:
        yield not_supported(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    for index, entry in enumerate(request.get("tolerations", [])):
        yield from toleration(entry, f"{path}.tolerations[{index}]")
