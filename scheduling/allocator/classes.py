"""DeviceClasses as the allocator reads them."""

from __future__ import annotations

from typing import Protocol

from scheduling.allocator import reading
from scheduling.allocator.claims import selector_expressions
from scheduling.allocator.reading import Object


class ClassLister(Protocol):
    """Knows the DeviceClasses of a cluster. A mapping from names to objects is one."""

    def get(self, name: str, /) -> Object | None:
        """The class of that name (v1 object), or None."""


class DeviceClass:
    """One DeviceClass (v1). Raises `InvalidObject` where a field is not of its type."""

    def __init__(self, obj: Object) -> None:
        """Read selectors and configuration."""
        self.object = obj
        self.reference = owner = reading.reference("DeviceClass", obj)
        self.name = owner.name
        spec = reading.mapping(owner, obj, "spec", "spec")
        self.selectors = selector_expressions(owner, spec, "spec")
        self.config = reading.objects(owner, spec, "config", "spec.config")
