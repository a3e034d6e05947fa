"""What a claim's object says of our devices, as a reservation. Pure."""

from __future__ import annotations

from driver.claims.allocation import allocated_devices
from driver.claims.model import AllocatedDevice
from kube.bodies import JsonObject, object_at, text_at
from node.values import Value, value


@value
class Reservation(Value):
    """A claim that is allocated. ``devices``: those of our driver and pool; ``users``: UIDs that may use the claim.

    ``grouped``: it is reserved for something that is no pod (a PodGroup), whose pods it does not name.
    """

    uid: str
    devices: tuple[AllocatedDevice, ...] = ()
    users: frozenset[str] = frozenset()
    grouped: bool = False

    def usable_by(self, pods: frozenset[str]) -> bool:
        """Whether one of these pods may use the claim, as far as can be seen."""
        return self.grouped or bool(self.users & pods)


def reservation_of(body: JsonObject | None, driver: str, pool: str) -> Reservation | None:
    """The claim's reservation, None where there is no claim or it is not allocated.

    Raises ``ClaimError`` when a field is not of its type.
    """
    uid = text_at(body, "metadata", "uid")
    if body is None or not uid or not object_at(body, "status", "allocation"):
        return None
    listed = object_at(body, "status").get("reservedFor")
    users = listed if isinstance(listed, list) else []
    return Reservation(
        uid,
        tuple(device for device in allocated_devices(body, driver) if device.pool == pool),
        frozenset(text_at(each, "uid") for each in users),
        any(text_at(each, "resource") != "pods" for each in users),
    )
