"""A slice as it is in the API: the few facts that plans are made from, and the object itself."""

from __future__ import annotations

from kube.bodies import Json, JsonObject, object_at, text_at
from node.values import Value, value

_WITHDRAWING = ("NoSchedule", "NoExecute")


@value
class Stored(Value):
    """``body`` is the v1 object; ``leaving``: somebody has deleted it and a finalizer still holds it."""

    name: str
    uid: str
    pool: str
    generation: int
    body: JsonObject
    leaving: bool = False

    @staticmethod
    def of(body: JsonObject) -> Stored:
        """Read a v1 object."""
        pool = object_at(body, "spec", "pool")
        return Stored(
            name=text_at(body, "metadata", "name"),
            uid=text_at(body, "metadata", "uid"),
            pool=text_at(pool, "name"),
            generation=_number(pool.get("generation")),
            body=body,
            leaving=bool(text_at(body, "metadata", "deletionTimestamp")),
        )

    @property
    def spec(self) -> JsonObject:
        """Its spec."""
        return object_at(self.body, "spec")

    @property
    def devices(self) -> tuple[JsonObject, ...]:
        """Its devices."""
        return objects_in(self.spec, "devices")

    @property
    def device_names(self) -> tuple[str, ...]:
        """Names of its devices, in their order."""
        return tuple([text_at(device, "name") for device in self.devices])

    @property
    def free_names(self) -> tuple[str, ...]:
        """Names of its devices that have no taint which keeps new claims away."""
        return tuple([text_at(device, "name") for device in self.devices if not _is_withdrawn(device)])

    @property
    def resource_version(self) -> str:
        """The version of the object."""
        return text_at(self.body, "metadata", "resourceVersion")


def objects_in(spec: JsonObject, field: str) -> tuple[JsonObject, ...]:
    """The objects of a list in a spec."""
    found = spec.get(field)
    return tuple([each for each in found if isinstance(each, dict)]) if isinstance(found, list) else ()


def _is_withdrawn(device: JsonObject) -> bool:
    return any(text_at(taint, "effect") in _WITHDRAWING for taint in objects_in(device, "taints"))


def _number(found: Json) -> int:
    return found if isinstance(found, int) and not isinstance(found, bool) else 0
