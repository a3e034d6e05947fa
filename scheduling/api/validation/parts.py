"""Rules for the parts that several kinds of objects have.

They are names (of drivers, pools, classes, attributes, and those of `scheduling.api.labels`), conditions, taints and
tolerations (KEP-5055), the choice of nodes, opaque configuration of drivers, and CEL selectors. Lengths are bytes of
UTF-8, as the API server counts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from scheduling.api.labels import (
    SUBDOMAIN_BYTES,
    label_faults,
    label_key_faults,
    label_value_faults,
    size,
    subdomain_faults,
)
from scheduling.api.validation.cause import (
    INTERNAL,
    Rule,
    StatusCause,
    each_invalid,
    forbidden,
    invalid,
    listed,
    not_supported,
    repeated,
    required,
    too_long,
    too_many,
)
from scheduling.api.validation.decoding import raw
from scheduling.api.validation.shapes import Gates

if TYPE_CHECKING:
    from scheduling.cel.environment import CelFeatures


DRIVER_BYTES: Final = 63
ATTRIBUTE_ID_BYTES: Final = 32
ATTRIBUTE_NAME_BYTES: Final = DRIVER_BYTES + 1 + ATTRIBUTE_ID_BYTES
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOST_CONDITIONS: Final = 8
_REASON_BYTES: Final = 1024
_MESSAGE_BYTES: Final = 32 * 1024
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_OPERATORS: Final = ("Equal", "Exists")
NODE_FIELDS: Final = ("nodeName", "nodeSelector", "allNodes")
"""The ways to choose nodes; a slice or a device uses exactly one."""
_PARAMETERS_BYTES: Final = 10 * 1024
_MOST_SELECTORS: Final = 32
_EXPRESSION_BYTES: Final = 10 * 1024
_COST: Final = 1_000_000


def _texts(faults: Callable[[str], list[str]]) -> Rule[str]:
    return lambda text, path: each_invalid(path, text, faults(text))


label = _texts(label_faults)
"""A DNS label: names of devices, requests, counters and counter sets."""
subdomain = _texts(subdomain_faults)
"""A DNS subdomain: names of nodes and classes."""
label_key = _texts(label_key_faults)
"""A label key: keys of taints, binding conditions, types of conditions."""
label_value = _texts(label_value_faults)
"""A label value: values of taints and tolerations."""


def driver(text: str, path: str) -> Iterator[StatusCause]:
    """A driver name: a DNS subdomain whose letters may be capital, 63 bytes."""
    if not text:
        yield required(path, "must name a driver")
        return
    if size(text) > DRIVER_BYTES:
        yield too_long(path, size(text), DRIVER_BYTES)
    yield from each_invalid(path, text, subdomain_faults(text.lower()))


def pool(text: str, path: str) -> Iterator[StatusCause]:
    """A pool name: DNS subdomains joined by slashes, 253 bytes."""
    if not text:
        yield required(path, "must name a pool")
        return
    if size(text) > SUBDOMAIN_BYTES:
        yield too_long(path, size(text), SUBDOMAIN_BYTES)
    for part in text.split("/"):
        yield from each_invalid(path, part, subdomain_faults(part))


def class_name(text: str, path: str) -> Iterator[StatusCause]:
    """The name of a DeviceClass."""
    if not text:
        yield required(path, "must name a DeviceClass")
    else:
        yield from subdomain(text, path)


def is_identifier(text: str) -> bool:
    """Whether `identifier` finds nothing."""
    return len(text) <= ATTRIBUTE_ID_BYTES and _IDENTIFIER.fullmatch(text) is not None


def identifier(text: str, path: str) -> Iterator[StatusCause]:
    """A C identifier of at most 32 bytes."""
    if size(text) > ATTRIBUTE_ID_BYTES:
        yield too_long(path, size(text), ATTRIBUTE_ID_BYTES)
    if not _IDENTIFIER.fullmatch(text):
        yield invalid(path, text, "must be letters, digits and '_', not starting with a digit")


def qualified_name(text: str, path: str) -> Iterator[StatusCause]:
    """The name of an attribute or capacity: an optional driver name as domain, a slash, a C identifier.

    A name with two slashes or more passes unseen, as in the API server.
    """
    domain, *rest = text.split("/")
    if not rest:
        yield from identifier(text, path)
    elif len(rest) == 1:
        if domain:
            yield from driver(domain, path)
        else:
            yield invalid(path, text, "must have a domain before its '/'")
        if rest[0]:
            yield from identifier(rest[0], path)
        else:
            yield invalid(path, text, "must have a name after its '/'")


def fully_qualified_name(text: str, path: str) -> Iterator[StatusCause]:
    """The name of an attribute with its domain."""
    yield from qualified_name(text, path)
    if "/" not in text:
        yield invalid(path, text, "must have a domain: write '<driver>/<name>'")


def uuid(text: str, path: str) -> Iterator[StatusCause]:
    """A UUID in the normal form of RFC 4122, lower case."""
    if not _UUID.fullmatch(text):
        yield invalid(path, text, "must be a UUID: 8-4-4-4-12 lower case hexadecimal digits")


def conditions(entries: Sequence[Mapping[str, Any]], path: str) -> Iterator[StatusCause]:
    """A list of conditions, each type once. A list that is too long is still looked into, as the server does."""
    if len(entries) > _MOST_CONDITIONS:
        yield too_many(path, len(entries), _MOST_CONDITIONS)
    yield from listed(entries, None, path, _condition)
    yield from repeated(entries, path, key=lambda entry: entry.get("type", ""), field=".type")


def _condition(condition: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    yield from label_key(condition.get("type", ""), f"{path}.type")
    status, reason = condition.get("status", ""), condition.get("reason", "")
    if status not in ("False", "True", "Unknown"):
        yield not_supported(f"{path}.status", status, ("False", "True", "Unknown"))
    if condition.get("observedGeneration", 0) < 0:
        yield invalid(f"{path}.observedGeneration", condition["observedGeneration"], "must not be negative")
    if not condition.get("lastTransitionTime"):
        yield required(f"{path}.lastTransitionTime", "must say when the status changed")
    if not reason:
        yield required(f"{path}.reason", "must be one word such as DeviceReady")
    elif not _REASON.fullmatch(reason):
        yield invalid(f"{path}.reason", reason, "must be letters, digits, '_', ',' or ':', and start with a letter")
    if size(reason) > _REASON_BYTES:
        yield too_long(f"{path}.reason", size(reason), _REASON_BYTES)
    if size(condition.get("message", "")) > _MESSAGE_BYTES:
        yield too_long(f"{path}.message", size(condition["message"]), _MESSAGE_BYTES)


def taint(entry: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    """A taint."""
    yield from taint_label(entry, path)
    effect = entry.get("effect", "")
    if not effect:
        yield required(f"{path}.effect", f"must be one of {', '.join(_EFFECTS)}")
    elif effect not in _EFFECTS:
        yield not_supported(f"{path}.effect", effect, _EFFECTS)


def taint_label(entry: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    """Key and value of a taint."""
    yield from label_key(entry.get("key", ""), f"{path}.key")
    yield from label_value(entry.get("value", ""), f"{path}.value")


def toleration(entry: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    """A toleration; without a key or an effect it tolerates any."""
    if entry.get("key"):
        yield from label_key(entry["key"], f"{path}.key")
    operator, value = entry.get("operator", ""), entry.get("value", "")
    if operator == "Exists":
        if value:
            yield invalid(f"{path}.value", value, "must be left out with operator Exists")
    elif operator == "Equal":
        yield from label_value(value, f"{path}.value")
    else:
        yield not_supported(f"{path}.operator", operator, _OPERATORS)
    effect = entry.get("effect", "")
    if effect and effect not in _EFFECTS:
        yield not_supported(f"{path}.effect", effect, _EFFECTS)


def chosen_nodes(part: Mapping[str, Any], *flags: str) -> list[str]:
    """Return which ways a slice's spec or a device uses. `flags`: ways beside `NODE_FIELDS` that are true or false."""
    fields = (*NODE_FIELDS, *flags)
    return [field for field in fields if part.get(field) or (field == "nodeSelector" and field in part)]


def node_fields(part: Mapping[str, Any], path: str, *flags: str) -> Iterator[StatusCause]:
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


def node_selector(selector: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
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


def _expression(requirement: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
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


def _field(requirement: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
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


def configuration(config: Mapping[str, Any], path: str, *, stored: bool) -> Iterator[StatusCause]:
    """The part of a configuration that all kinds of it share. `stored`: it was accepted before, with any size."""
    if "opaque" not in config:
        yield required(f"{path}.opaque", "must hold a driver and its parameters")
        return
    opaque = config["opaque"]
    yield from driver(opaque.get("driver", ""), f"{path}.opaque.driver")
    limit = None if stored else _PARAMETERS_BYTES
    yield from json_object(opaque.get("parameters"), f"{path}.opaque.parameters", limit)


def json_object(value: object, path: str, limit: int | None) -> Iterator[StatusCause]:
    """Raw JSON that must be a mapping of at most `limit` bytes."""
    if value is None:
        yield required(path, "must be a mapping")
    elif limit is not None and len(raw(value)) > limit:
        yield too_long(path, len(raw(value)), limit)
    elif not isinstance(value, Mapping):
        yield invalid(path, value, "must be a mapping")


def selectors(entries: Sequence[Mapping[str, Any]], path: str, gates: Gates, *, stored: bool) -> Iterator[StatusCause]:
    """A list of selectors. `stored`: they were accepted before, perhaps by a later version."""
    # A caller that judges slices alone must not pay for CEL.
    from scheduling.cel.environment import CelFeatures

    features = CelFeatures(
        consumable_capacity=gates.consumable_capacity, list_attributes=gates.list_attributes, stored=stored
    )

    def selector(entry: Mapping[str, Any], at: str) -> Iterator[StatusCause]:
        if "cel" not in entry:
            yield required(f"{at}.cel", "must hold an expression")
        else:
            yield from _cel_expression(entry["cel"].get("expression", ""), f"{at}.cel.expression", features)

    yield from listed(entries, _MOST_SELECTORS, path, selector)


def _cel_expression(text: str, path: str, features: CelFeatures) -> Iterator[StatusCause]:
    if size(text) > _EXPRESSION_BYTES:
        yield too_long(path, size(text), _EXPRESSION_BYTES)
        return
    from scheduling.cel.compiler import compile as compile_expression
    from scheduling.cel.errors import CompileError

    try:
        cost = compile_expression(text, features).max_cost
    except CompileError as error:
        if error.kind == "Internal":
            yield StatusCause(path, INTERNAL, str(error))
        else:
            yield invalid(path, text, f"does not compile: {error}")
        return
    if cost > _COST:
        yield forbidden(path, f"may cost {cost}, at most {_COST} are allowed; test fewer or shorter values")
