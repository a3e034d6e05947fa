"""ResourceClaims and their requests for tests, as short as their meaning allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.making.slices import DRIVER, Json

CLASSES: Mapping[str, Json] = {"any": {"metadata": {"name": "any"}, "spec": {}}}


def exactly(count: int = 1, selector: str = "", **fields: Any) -> Json:
    """What a request or an alternative asks for; a count of 0 stands for the mode All."""
    made: Json = {"deviceClassName": "any", "allocationMode": "ExactCount" if count else "All", **fields}
    if count:
        made["count"] = count
    if selector:
        made["selectors"] = [{"cel": {"expression": selector}}]
    return made


def request(name: str, *args: Any, **fields: Any) -> Json:
    """A request for exactly that."""
    return {"name": name, "exactly": exactly(*args, **fields)}


def first_available(name: str, *alternatives: Json) -> Json:
    """A request with alternatives named s0, s1, ..."""
    return {"name": name, "firstAvailable": [{"name": f"s{i}", **each} for i, each in enumerate(alternatives)]}


def claim(requests: Sequence[Json], *constraints: Json, name: str = "claim", **fields: Any) -> Json:
    """A claim; `fields` go beside its requests and constraints."""
    devices: Json = {"requests": list(requests), **fields}
    if constraints:
        devices["constraints"] = list(constraints)
    return {"metadata": {"name": name, "namespace": "team"}, "spec": {"devices": devices}}


def match(name: str, *requests: str) -> Json:
    """A constraint matchAttribute on an attribute of the driver."""
    return {"matchAttribute": f"{DRIVER}/{name}", **({"requests": list(requests)} if requests else {})}


def distinct(name: str, *requests: str) -> Json:
    """A constraint distinctAttribute on an attribute of the driver."""
    return {"distinctAttribute": f"{DRIVER}/{name}", **({"requests": list(requests)} if requests else {})}
