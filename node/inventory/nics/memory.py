"""The last facts of a NIC's interfaces and RDMA devices, for the time while they are in a pod.

A NIC is its PCI function and bound driver. An interface or RDMA device that moved into a pod's network namespace is
invisible to the agent, also after the agent's restart. Rules select by it and pods hold it, so it is remembered while
the same driver is bound. Pure: ``node.inventory.identity`` reads and writes the file.

The state of the link is not remembered, because nobody can read it for an interface in a pod. Speeds are remembered
only in memory; a new speed is no reason to write to the disk.

The record holds frozen values as JSON by their type hints, so a new field needs no line here. Fields at their defaults
are left out. A field that a newer version wrote is skipped; any other value of the wrong form is an error, since half a
value would be a wrong one.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar

from node.files import JsonValue
from node.inventory.net_facts import NetInterface, RdmaDevice, RdmaPort
from node.values import Value, replace, value


@value
class RememberedNic(Value):
    """A function by its PCI address (``auxiliary``: its subfunction's device, else empty) and what it had last.
    ``driver`` is the driver bound at that time; the memory counts only while it is bound. ``firmware``: version as
    ethtool shows it.
    """

    address: str
    driver: str
    auxiliary: str = ""
    interfaces: tuple[NetInterface, ...] = ()
    rdma: tuple[RdmaDevice, ...] = ()
    firmware: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Address and auxiliary device."""
        return self.address, self.auxiliary


def remembered_interface(interface: NetInterface) -> NetInterface:
    """The interface without what is not remembered."""
    return replace(interface, ifindex=None, operstate=None, carrier=None)


def remembered_rdma(device: RdmaDevice) -> RdmaDevice:
    """The RDMA device without what is not remembered."""
    return replace(device, ports=tuple([replace(port, state=None, physical_state=None) for port in device.ports]))


def lasting(nics: Iterable[RememberedNic]) -> tuple[RememberedNic, ...]:
    """The part whose changes are worth a write to the disk: all but speeds, which change with the link."""
    return tuple(
        replace(
            nic,
            interfaces=tuple([replace(each, speed_mbps=None) for each in nic.interfaces]),
            rdma=tuple([replace(each, ports=_without_rates(each.ports)) for each in nic.rdma]),
        )
        for nic in nics
    )


def nics_to_data(nics: Iterable[RememberedNic]) -> JsonValue:
    """The memory as JSON data."""
    return [to_data(nic) for nic in nics]


def nics_from_data(data: JsonValue) -> tuple[RememberedNic, ...]:
    """The memory from JSON data, by address, one entry per function; malformed entries are left out."""
    found: dict[tuple[str, str], RememberedNic] = {}
    for item in data if isinstance(data, list) else ():
        try:
            nic = from_data(RememberedNic, item)
        except ValueError:
            continue  # The record's hash was right: another version wrote this, and the next scan writes it again.
        found[nic.key] = nic
    return tuple(found[key] for key in sorted(found))


def _without_rates(ports: Iterable[RdmaPort]) -> tuple[RdmaPort, ...]:
    return tuple([replace(port, rate=None) for port in ports])


Made = TypeVar("Made", bound=Value)


def to_data(value: Value) -> JsonValue:
    """The value as a JSON object; for fields that are texts, whole numbers, truths, values, or tuples of these."""
    made: dict[str, JsonValue] = {}
    for each in fields(value):  # type: ignore[arg-type]  # every Value is a dataclass, its base alone is not
        content = getattr(value, each.name)
        if each.default is MISSING or content != each.default:
            made[each.name] = _plain(content)
    return made


def from_data(kind: type[Made], data: JsonValue) -> Made:
    """The value from which ``to_data`` made this data. Raises ValueError."""
    made = _made(kind, data)
    assert isinstance(made, kind)
    return made


def _made(kind: type, data: JsonValue) -> object:
    if not isinstance(data, dict):
        raise ValueError(f"{kind.__name__} is not an object")  # noqa: TRY004 - one exception for all that is malformed
    hints = _hints(kind)
    given = {name: _typed(hints[name], content, name) for name, content in data.items() if name in hints}
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from error


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _plain(content: object) -> JsonValue:
    if isinstance(content, tuple):
        return [_plain(item) for item in content]
    if isinstance(content, Value):
        return to_data(content)
    assert content is None or isinstance(content, str | int)
    return content


def _typed(hint: Any, data: JsonValue, name: str) -> object:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{name} is not a list")
        return tuple([_typed(arguments[0], item, name) for item in data])
    if origin in (types.UnionType, typing.Union):
        if data is None:
            return None
        return _typed(next(each for each in arguments if each is not type(None)), data, name)
    if isinstance(hint, type) and issubclass(hint, Value):
        return _made(hint, data)
    if type(data) is not hint:  # Exactly: a truth is no number here.
        raise ValueError(f"{name} is no {hint.__name__}")
    return data
