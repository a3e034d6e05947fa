"""What the larger frozen values share: comparing, hashing and printing, written once instead of generated per class.

``dataclass`` compiles these methods for every class at import, half of what such a class costs there. The agent has
dozens of them, and its start-up time is part of a kubelet restart's window; so the modules that it loads on its way to
the kubelet use ``@dataclass(frozen=True, slots=True, repr=False, eq=False)`` and inherit from ``Value``. What is given
up is some speed in comparisons, of which there are a few hundred a minute.
"""

from __future__ import annotations


class Value:
    """Base of frozen, slotted dataclasses without generated comparison; equal when class and all fields are."""

    __slots__: tuple[str, ...] = ()

    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash((self.__class__, self._fields()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({shown})"
