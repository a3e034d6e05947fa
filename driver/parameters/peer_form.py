"""Reading a peer's parameters field by field: every field known, and errors with its place, value and fix.

Pure. null counts as an absent field, as in the peers' own decoders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from driver.claims.model import AllocatedConfig, ConfigSource
from driver.parameters.errors import UnservedParameter, missing_or, shown, shown_key
from driver.parameters.interface import InterfaceParameters
from driver.parameters.interface_values import CLASS_ONLY
from driver.parameters.sharing import SharingParameters
from kube.bodies import Json, JsonObject
from node.sharing import SharingStrategy

PeerFields = Mapping[str, Callable[["PeerParameters", str, Json], None]]


class PeerParameters:
    """A peer's parameters, their place, and the errors about them."""

    def __init__(self, config: AllocatedConfig, ours: str) -> None:
        self.content = config.parameters
        self.is_of_claim = config.source is not ConfigSource.CLASS
        self.ours = ours
        self._place = config.labelled_place
        self._peer = config.peer

    def error(self, field: str, found: str, fix: str) -> UnservedParameter:
        """The error that ``field`` holds ``found``."""
        return UnservedParameter(self._place, field, found, fix)

    def sharing(self, strategy: SharingStrategy, said: str, **more: Any) -> SharingParameters:
        """A section ``sharing`` of these parameters."""
        return SharingParameters(self._place, strategy, said, of_peer=True, **more)

    def interface(self, paths: Mapping[str, str], **settings: Any) -> InterfaceParameters:
        """The settings that these parameters ask for an interface; ``paths``: where each of them stands."""
        return InterfaceParameters(self._place, paths, of_peer=True, **settings)

    def check_class_only(self, field: str) -> None:
        """Refuse what a claim may not set."""
        if self.is_of_claim:
            raise self.error(field, "a claim may not set it", CLASS_ONLY)

    def unserved(self, field: str, content: Json, fix: str, why: str = "") -> UnservedParameter:
        """The error that ostler does not support the value."""
        because = f": {why}" if why else ""
        return self.error(field, f"{shown(content)} is for {self._peer} and ostler does not support it{because}", fix)

    def each(self, content: JsonObject, fields: PeerFields, path: str = "", *, skip: Collection[str] = ()) -> None:
        """Check every field of an object; null counts as absent."""
        for key, value in content.items():
            if key in skip:
                continue
            if key not in fields:
                known = ", ".join(fields)
                raise self.error(f"{path}{shown_key(key)}", f"{self._peer} has no such field", f"it has {known}")
            if value is not None:
                fields[key](self, f"{path}{key}", value)

    def versioned(self, version: str, kinds: Collection[str]) -> str:
        """The kind, which must be a supported one."""
        found, kind = self.content.get("apiVersion"), self.content.get("kind")
        if found != version:
            raise self.error("apiVersion", missing_or(found), f"write {version}")
        if not isinstance(kind, str) or kind not in kinds:
            raise self.error("kind", missing_or(kind), f"write one of {', '.join(kinds)}")
        return kind


def anything(parameters: PeerParameters, path: str, content: Json) -> None:
    """Accept the value."""


def object_at_path(parameters: PeerParameters, path: str, content: Json) -> JsonObject:
    """The value, which must be an object."""
    if not isinstance(content, dict):
        raise parameters.error(path, f"{shown(content)} is not an object", "write an object, or leave it out")
    return content
