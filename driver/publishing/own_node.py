"""The API server as a node's own slices are written to it: not before the Node has proved to be this machine.

A wrong node name would put this machine's devices on another node, and take that node's own slices for surplus ones of
ours. So nothing is asked of slices, and nothing is written, before the Node was read and believed; and it is looked at
again whenever it is read again, since a Node of that name may be another one by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from driver.slices.api import SliceApi
from kube.bodies import JsonObject
from kube.collection import Source


class OwnNode:
    """``api`` for the slices of one Node: a ``SliceApi``. ``check`` raises ``KubeError`` for another machine's Node."""

    def __init__(self, api: SliceApi, check: Callable[[JsonObject], None]) -> None:
        self._api = api
        self._check = check
        self._proved: dict[str, JsonObject] = {}

    def prove(self, name: str) -> None:
        """Read and check the Node; raises what reading or ``check`` raises."""
        self._proved[name] = self._read(name)

    def node(self, name: str) -> JsonObject:
        """See ``SliceApi``: a Node that is ours. What was read for the proof is the first answer."""
        return self._proved.pop(name, None) or self._read(name)

    def slices(self, query: Mapping[str, str]) -> Source:
        """See ``SliceApi``."""
        return self._api.slices(query)

    def list_slices(self, query: Mapping[str, str]) -> Sequence[JsonObject]:
        """See ``SliceApi``."""
        return self._api.list_slices(query)

    def create_slice(self, body: JsonObject) -> JsonObject:
        """See ``SliceApi``."""
        return self._api.create_slice(body)

    def replace_slice(self, body: JsonObject) -> JsonObject:
        """See ``SliceApi``."""
        return self._api.replace_slice(body)

    def delete_slice(self, name: str, *, uid: str = "", resource_version: str = "") -> None:
        """See ``SliceApi``."""
        self._api.delete_slice(name, uid=uid, resource_version=resource_version)

    def _read(self, name: str) -> JsonObject:
        node = self._api.node(name)
        self._check(node)
        return node
