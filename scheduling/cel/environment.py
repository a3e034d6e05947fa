"""The environment of expressions: functions, names and the type of the device, by the features of the cluster.

Kubernetes keeps two environments. `stored` is for expressions that are in the cluster already, and what the scheduler
evaluates: everything known, whatever the feature gates say. `new` is for objects that are being written: only what a
control plane one minor version older would understand too (here 1.36), and what is switched on.

They differ in three things: whether `includes` exists, whether the device has `allowMultipleAllocations`, and whether
the type of an attribute is `dyn` or `google.protobuf.Any`, over which nothing can iterate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from scheduling.cel.library import (
    authorization,
    conversions,
    formats,
    formatting,
    ip,
    lists,
    optionals,
    quantity,
    regex,
    semver,
    standard,
    strings,
    times,
    url,
)
from scheduling.cel.library.function import Library, Overload
from scheduling.cel.library.prices import ONE_UNIT, Price
from scheduling.cel.macros import TWO_VARIABLES
from scheduling.cel.messages import CONSTANTS, MESSAGES, NAMED_TYPES
from scheduling.cel.types import ANY, BOOL, DEVICE, DYN, INT, QUANTITY, STRING, Type, map_of, type_of


@dataclass(frozen=True, slots=True)
class CelFeatures:
    """The feature gates that change what an expression may use; `stored` chooses the environment (see the module)."""

    consumable_capacity: bool = True
    list_attributes: bool = False
    stored: bool = True


@dataclass(frozen=True, slots=True)
class CelEnvironment:
    """The names that an expression may use.

    `functions`: overloads in the order in which Kubernetes declares them. `names`: variables and the names of types.
    `messages`: fields by the name of the message. `constants`: names of numbers. `attribute`: the type of an
    attribute's value.
    """

    functions: Mapping[str, tuple[Overload, ...]]
    names: Mapping[str, Type]
    messages: Mapping[str, Mapping[str, Type]]
    constants: Mapping[str, int]
    attribute: Type


@cache
def environment(features: CelFeatures) -> CelEnvironment:
    """The environment for these features."""
    attribute = DYN if features.stored or features.list_attributes else ANY
    attributes = map_of(STRING, map_of(STRING, attribute))
    capacity = map_of(STRING, map_of(STRING, QUANTITY))
    device = {"driver": STRING, "attributes": attributes, "capacity": capacity}
    if features.stored or features.consumable_capacity:
        device["allowMultipleAllocations"] = BOOL
    types = {
        **NAMED_TYPES,
        DEVICE.name: DEVICE,
        f"{DEVICE.name}.attributes": attributes,
        f"{DEVICE.name}.attributes.@elem": map_of(STRING, attribute),
        f"{DEVICE.name}.capacity": capacity,
    }
    names = {name: type_of(of) for name, of in types.items()}
    names.update(dict.fromkeys(CONSTANTS, INT))
    names["device"] = DEVICE
    messages = {**MESSAGES, DEVICE.name: device}
    return CelEnvironment(_by_function(_libraries(features)), names, messages, CONSTANTS, attribute)


def _libraries(features: CelFeatures) -> tuple[Library, ...]:
    """The libraries in the order in which Kubernetes declares them, which decides between overloads of one name."""
    return (
        standard.LIBRARY,
        conversions.LIBRARY,
        times.LIBRARY,
        url.LIBRARY,
        regex.LIBRARY,
        () if features.stored else lists.KUBERNETES,
        authorization.LIBRARY,
        optionals.LIBRARY,
        quantity.LIBRARY,
        strings.LIBRARY,
        formatting.LIBRARY,
        lists.SETS,
        ip.LIBRARY,
        formats.LIBRARY,
        TWO_VARIABLES,
        semver.LIBRARY,
        lists.EXTENSION,
        lists.KUBERNETES if features.stored else (),
        lists.INCLUDES if features.stored or features.list_attributes else (),
    )


def _by_function(libraries: tuple[Library, ...]) -> Mapping[str, tuple[Overload, ...]]:
    functions: dict[str, tuple[Overload, ...]] = {}
    for library in libraries:
        for each in library:
            functions[each.function] = (*functions.get(each.function, ()), each)
    return functions


@cache
def overloads() -> Mapping[str, Overload]:
    """Every overload of every environment, by its identifier."""
    return {each.id: each for library in _libraries(CelFeatures(stored=True)) for each in library}


@cache
def price_by_name(function: str) -> Price:
    """The price of a function whose overload is known only at run time."""
    named = (each.price for each in overloads().values() if each.function == function and each.price.by_name)
    return next(named, ONE_UNIT)
