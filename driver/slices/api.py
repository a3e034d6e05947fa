"""What the controller needs of the API server: a protocol that ``driver.resource_api.client.ResourceApi`` fulfils.

Objects are resource.k8s.io/v1 dicts, whatever version the server serves. Failures are ``kube.errors.RequestError``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from kube.bodies import JsonObject
from kube.collection import Source


class SliceApi(Protocol):
    """Slices and nodes at the API server. Blocking, for several threads."""

    def slices(self, query: Mapping[str, str]) -> Source:
        """The slices that a ``fieldSelector`` chooses, as something that a ``Watching`` can be made of."""
        ...

    def list_slices(self, query: Mapping[str, str]) -> Sequence[JsonObject]:
        """The same slices as they are now."""
        ...

    def create_slice(self, body: JsonObject) -> JsonObject:
        """Create a slice; what the server made of it."""
        ...

    def replace_slice(self, body: JsonObject) -> JsonObject:
        """Put ``body`` in place of the slice of its name, if that still has its resourceVersion."""
        ...

    def delete_slice(self, name: str, *, uid: str = "", resource_version: str = "") -> None:
        """Delete exactly this object in exactly this state."""
        ...

    def node(self, name: str) -> JsonObject:
        """The Node of that name."""
        ...


class Watching(Protocol):
    """A list and a watch that go on until they are stopped, in a thread of their own."""

    @property
    def synced(self) -> threading.Event:
        """Set when the first list has been handed over."""
        ...

    def start(self) -> object:
        """Begin."""
        ...

    def stop(self) -> object:
        """End; the handler is not called any more when this returns."""
        ...
