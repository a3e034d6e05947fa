"""Rules for names at a path: of drivers, pools, classes, attributes, and those of `scheduling.api.labels`.

Lengths are bytes of UTF-8, as the API server counts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from scheduling.api.labels import (
    SUBDOMAIN_BYTES,
    label_faults,
    label_key_faults,
    label_value_faults,
    size,
    subdomain_faults,
)
from scheduling.api.validation.cause import Cause, each_invalid, invalid, required, too_long

DRIVER_BYTES: Final = 63
ATTRIBUTE_ID_BYTES: Final = 32
ATTRIBUTE_NAME_BYTES: Final = DRIVER_BYTES + 1 + ATTRIBUTE_ID_BYTES

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def label(text: str, path: str) -> Iterator[Cause]:
    """A DNS label: names of devices, requests, counters and counter sets."""
    return each_invalid(path, text, label_faults(text))


def subdomain(text: str, path: str) -> Iterator[Cause]:
    """A DNS subdomain: names of nodes and classes."""
    return each_invalid(path, text, subdomain_faults(text))


def label_key(text: str, path: str) -> Iterator[Cause]:
    """A label key: keys of taints, binding conditions, types of conditions."""
    return each_invalid(path, text, label_key_faults(text))


def label_value(text: str, path: str) -> Iterator[Cause]:
    """A label value: values of taints and tolerations."""
    return each_invalid(path, text, label_value_faults(text))


def driver(text: str, path: str) -> Iterator[Cause]:
    """A driver name: a DNS subdomain whose letters may be capital, 63 bytes."""
    if not text:
        yield required(path, "must name a driver")
        return
    if size(text) > DRIVER_BYTES:
        yield too_long(path, size(text), DRIVER_BYTES)
    yield from each_invalid(path, text, subdomain_faults(text.lower()))


def pool(text: str, path: str) -> Iterator[Cause]:
    """A pool name: DNS subdomains joined by slashes, 253 bytes."""
    if not text:
        yield required(path, "must name a pool")
        return
    if size(text) > SUBDOMAIN_BYTES:
        yield too_long(path, size(text), SUBDOMAIN_BYTES)
    for part in text.split("/"):
        yield from each_invalid(path, part, subdomain_faults(part))


def class_name(text: str, path: str) -> Iterator[Cause]:
    """The name of a DeviceClass."""
    if not text:
        yield required(path, "must name a DeviceClass")
    else:
        yield from subdomain(text, path)


def identifier(text: str, path: str) -> Iterator[Cause]:
    """A C identifier of at most 32 bytes."""
    if size(text) > ATTRIBUTE_ID_BYTES:
        yield too_long(path, size(text), ATTRIBUTE_ID_BYTES)
    if not _IDENTIFIER.fullmatch(text):
        yield invalid(path, text, "must be letters, digits and '_', not starting with a digit")


def qualified_name(text: str, path: str) -> Iterator[Cause]:
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


def fully_qualified_name(text: str, path: str) -> Iterator[Cause]:
    """The name of an attribute with its domain."""
    yield from qualified_name(text, path)
    if "/" not in text:
        yield invalid(path, text, "must have a domain: write '<driver>/<name>'")


def uuid(text: str, path: str) -> Iterator[Cause]:
    """A UUID in the normal form of RFC 4122, lower case."""
    if not _UUID.fullmatch(text):
        yield invalid(path, text, "must be a UUID: 8-4-4-4-12 lower case hexadecimal digits")
