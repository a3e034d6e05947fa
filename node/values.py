"""What large frozen values share: a ``repr`` that is made when it is asked for.

``dataclass`` compiles a ``repr`` for every class at import, a third of what such a class costs there. The agent has
dozens of them and its start-up time is part of a kubelet restart's window, so values that only debugging prints use
``@dataclass(..., repr=False)`` and inherit this one.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Value:
    """Base of dataclasses with ``repr=False``; shows the fields that differ from their defaults."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown = (
            f"{field.name}={value!r}"
            for field in fields(cast("DataclassInstance", self))
            if (value := getattr(self, field.name)) != field.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"
