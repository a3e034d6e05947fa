"""NVML's fields, which are polled for as long as the agent lives, some dozens for each GPU.

The binding's structures look up their own methods at every access, which would be most of a poll's cost; so a query is
prepared once, with structures of its own. They are taken apart only where an answer differs from the one before.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence

_MEMBERS = ("as_double", "as_uint", "as_ulong", "as_ulonglong", "as_longlong", "as_int", "as_ushort")
"""Members of a value by its type (nvmlValueType_t)."""


class _Value(ctypes.Union):
    """``nvmlValue_t``."""

    _fields_ = (
        ("as_double", ctypes.c_double),
        ("as_uint", ctypes.c_uint),
        ("as_ulong", ctypes.c_ulong),
        ("as_ulonglong", ctypes.c_ulonglong),
        ("as_longlong", ctypes.c_longlong),
        ("as_int", ctypes.c_int),
        ("as_ushort", ctypes.c_ushort),
    )


class _FieldValue(ctypes.Structure):
    """``nvmlFieldValue_t``."""

    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_uint),
        ("result", ctypes.c_uint),
        ("value", _Value),
    )


_LAYOUT = "24xIIQ"
"""The kind, the result and the bits of the value of a ``_FieldValue``, without its name and the times of the answer."""


class FieldQuery:
    """Asks one GPU for these fields, each a number and a scope; for one thread at a time."""

    def __init__(self, fields: Sequence[tuple[int, int]]) -> None:
        self.fields = tuple(fields)
        self.values = (_FieldValue * len(self.fields))()
        for value, (number, scope) in zip(self.values, self.fields, strict=True):
            value.field, value.scope = number, scope
        self._layout = struct.Struct("@" + _LAYOUT * len(self.fields))
        self._last: tuple[tuple[int, ...], Mapping[tuple[int, int], int | str]] = (), {}
        """What the driver has written, without the times that it also notes, and the answers in it."""

    def answers(self, errors: Mapping[int, str]) -> Mapping[tuple[int, int], int | str]:
        """Each field's value after a call, or the name of its own error; the same object if all are as before."""
        written = self._layout.unpack(self.values)
        if written != self._last[0]:
            found = {field_: _answer(value, errors) for field_, value in zip(self.fields, self.values, strict=True)}
            self._last = written, found
        return self._last[1]


def _answer(value: _FieldValue, errors: Mapping[int, str]) -> int | str:
    if value.result:
        return errors.get(value.result, f"ERROR_{value.result}")
    kind = value.kind
    return int(getattr(value.value, _MEMBERS[kind])) if kind < len(_MEMBERS) else "INVALID_ARGUMENT"
