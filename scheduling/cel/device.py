"""A device as expressions see it.

`device` in an expression is a map of four entries: `driver`, `allowMultipleAllocations`, `attributes` and `capacity`,
the last two from domain to identifier to value. A name without a domain belongs to the driver's domain; an unknown
domain is an empty map, an unknown identifier an error.

A device with an attribute that has no value of a known kind, or a version that is none, fails every evaluation, as in
Kubernetes: `fault` says so, and nothing is raised when the device is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduling.api.quantities import QuantityError, of_json
from scheduling.cel.library.quantity import Amount
from scheduling.cel.library.semver import Semver, SemverError
from scheduling.cel.library.semver import parse as parse_version
from scheduling.cel.values import Domains, Texts, Value

Json = object
"""A value as JSON or YAML give it."""


class CelDevice:
    """One device, made once and evaluated often. Immutable.

    `variable` is the value of `device` in an expression. `fault` is the error that every evaluation for the device ends
    with, empty for a sound device.
    """

    __slots__ = ("attributes", "capacity", "driver", "fault", "multiple", "variable")

    def __init__(self, driver: str, device: Mapping[str, Json]) -> None:
        """`device` as in `spec.devices` of a v1 ResourceSlice; keys that expressions cannot see are ignored."""
        self.driver = driver
        self.fault = ""
        self.multiple = device.get("allowMultipleAllocations") is True
        self.attributes = Domains()
        self.capacity = Domains()
        try:
            for name, attribute in _entries(device.get("attributes")):
                self._put(self.attributes, name, _attribute_value(name, attribute))
            for name, capacity in _entries(device.get("capacity")):
                self._put(self.capacity, name, _amount(name, capacity))
        except _Unsound as error:
            self.fault = str(error)
        self.variable = Texts(
            driver=driver, allowMultipleAllocations=self.multiple, attributes=self.attributes, capacity=self.capacity
        )

    def read(self, path: tuple[str, ...], missing: Value = None) -> Value:
        """The value at the end of a path from the device (see `reads`), or `missing`."""
        value: Value = self.variable
        for step in path:
            if not isinstance(value, dict):
                return missing
            value = value.get(step, missing)
        return value

    def _put(self, domains: Domains, name: str, value: Value) -> None:
        if "/" in name:
            domain, _, identifier = name.partition("/")
        else:
            domain, identifier = self.driver, name
        inner = domains.get(domain)
        if inner is None:
            inner = domains[domain] = Texts()
        assert isinstance(inner, dict)
        inner[identifier] = value


_SINGLE = ("int", "bool", "string")
"""Kinds of attributes whose value is that of their field."""


class _Unsound(Exception):
    """An attribute or capacity that has no value."""


def _entries(found: Json) -> list[tuple[str, Mapping[str, Json]]]:
    if not isinstance(found, Mapping):
        return []
    # Comparing types first is faster than isinstance with an abstract class, and this is asked for every value.
    return [
        (str(name), value if type(value) is dict or isinstance(value, Mapping) else {}) for name, value in found.items()
    ]


def _attribute_value(name: str, attribute: Mapping[str, Json]) -> Value:
    """The value of an attribute; lists come before single values, as in Kubernetes."""
    if len(attribute) == 1:
        ((only, value),) = attribute.items()
        if only in _SINGLE and value is not None:
            return value
    for kind in ("ints", "bools", "strings"):
        many = _list(attribute.get(kind))
        if many is not None:
            return many
    many = _list(attribute.get("versions"))
    if many is not None:
        return [_version(name, each) for each in many]
    for kind in _SINGLE:
        value = attribute.get(kind)
        if value is not None:
            return value
    value = attribute.get("version")
    if value is not None:
        return _version(name, value)
    raise _Unsound(f"attribute {name}: it has no value of a known kind (int, bool, string, version or a list of one)")


def _list(value: Json) -> list[Json] | None:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(value)
    return None


def _version(name: str, text: Json) -> Semver:
    try:
        return parse_version(str(text))
    except SemverError as error:
        raise _Unsound(f"attribute {name}: {error}") from error


def _amount(name: str, capacity: Mapping[str, Json]) -> Amount:
    value = capacity.get("value", "0")
    try:
        return Amount(of_json(value))
    except QuantityError as error:
        raise _Unsound(f"capacity {name}: {error}") from error
