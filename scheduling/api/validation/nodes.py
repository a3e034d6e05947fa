"""Rules for the choice of nodes: by name, by selector or all, in slices, devices and allocation results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduling.api.validation.cause import Cause, forbidden, invalid, required
from scheduling.api.validation.names import label_key, label_value, subdomain

NODE_FIELDS: Final = ("nodeName", "nodeSelector", "allNodes")
"""The ways to choose nodes; a slice or a device uses exactly one."""


def chosen_nodes(part: Mapping[str, Any], *flags: str) -> list[str]:
    """Return which ways a slice's spec or a device uses. `flags`: ways beside `NODE_FIELDS` that are true or false."""
    fields = (*NODE_FIELDS, *flags)
    return [field for field in fields if part.get(field) or (field == "nodeSelector" and field in part)]


def node_fields(part: Mapping[str, Any], path: str, *flags: str) -> Iterator[Cause]:
    """Judge each way by itself."""
    if part.get("nodeName"):
        yield from subdomain(part["nodeName"], f"{path}.nodeName")
    elif "nodeName" in part:
        yield invalid(f"{path}.nodeName", "", "must be left out or name a node")
    if "nodeSelector" in part:
        yield from node_selector(part["nodeSelector"], f"{path}.nodeSelector")
    for flag in ("allNodes", *flags):
        if flag in part and not part[flag]:
            yield invalid(f"{path}.{flag}", part[flag], "must be left out or true")


def node_selector(selector: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """A node selector: at least one term."""
    terms = selector.get("nodeSelectorTerms", [])
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one term")
    for index, term in enumerate(terms):
        at = f"{path}.nodeSelectorTerms[{index}]"
        for place, requirement in enumerate(term.get("matchExpressions", [])):
            yield from _expression(requirement, f"{at}.matchExpressions[{place}]")
        for place, requirement in enumerate(term.get("matchFields", [])):
            yield from _field(requirement, f"{at}.matchFields[{place}]")


def _expression(requirement: Mapping[str, Any], path: str) -> Iterator[Cause]:
    operator, values = requirement.get("operator", ""), requirement.get("values", [])
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", f"must have a value for {operator}")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{path}.values", f"must be empty for {operator}")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{path}.values", f"must have exactly one value for {operator}")
    else:
        yield invalid(f"{path}.operator", operator, "must be In, NotIn, Exists, DoesNotExist, Gt or Lt")
    yield from label_key(requirement.get("key", ""), f"{path}.key")
    for index, value in enumerate(values):
        yield from label_value(value, f"{path}.values[{index}]")


def _field(requirement: Mapping[str, Any], path: str) -> Iterator[Cause]:
    operator, values = requirement.get("operator", ""), requirement.get("values", [])
    if operator not in ("In", "NotIn"):
        yield invalid(f"{path}.operator", operator, "must be In or NotIn for a field")
    elif len(values) != 1:
        yield required(f"{path}.values", f"must have exactly one value for {operator}")
    if requirement.get("key", "") != "metadata.name":
        yield invalid(f"{path}.key", requirement.get("key", ""), "must be metadata.name, the one field of a node")
        return
    for index, value in enumerate(values):
        yield from subdomain(value, f"{path}.values[{index}]")
