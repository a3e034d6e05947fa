"""What a conversion between pools and Kubernetes' objects cannot carry over, named one by one."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Lost:
    """One thing that is lost: the document, its field, and why, with what is done instead.

    `left_out`: the whole object is left out, because without this it would mean something wider.
    """

    document: str
    field: str
    why: str
    left_out: bool = False

    def __str__(self) -> str:
        """`DeviceClaim trainer: spec.claims[0].configs: …`."""
        return f"{self.document}: {self.field}: {self.why}" if self.field else f"{self.document}: {self.why}"


class LeftOut(Exception):
    """An object that cannot be converted: the field and the reason."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        self.why = why


@dataclass(slots=True)
class Losses:
    """Collects what is lost of one document; `into` holds those of all."""

    document: str
    into: list[Lost] = field(default_factory=list)

    def add(self, at: str, why: str) -> None:
        """Something is lost, and the object is converted without it."""
        self.into.append(Lost(self.document, at, why))

    def leave_out(self, fault: LeftOut) -> None:
        """The whole object is left out."""
        self.into.append(Lost(self.document, fault.field, f"{fault.why}; left out", left_out=True))
