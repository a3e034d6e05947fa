"""What the kubelet says that containers have: values, as they were read.

Ids are the kubelet's, of any resource and plugin, since another plugin may have given out the same hardware; which
device is meant is decided against the devices of the moment.
"""

from __future__ import annotations

from node.values import Value, value


@value
class Holding(Value):
    """An id that a container has through the plugin door.

    ``pod``: ``namespace/name``, empty where only the UID is known (the checkpoint); ``uid``: empty where only the name
    is (podresources).
    """

    resource: str
    id: str
    container: str
    pod: str = ""
    uid: str = ""


@value
class Reading(Value):
    """One look at the kubelet, begun at a time of the monotonic clock; it says nothing of what came after that.

    ``listed``: podresources; ``recorded``: the checkpoint; ``allocatable``: resource and id of every device that the
    kubelet counts as healthy. Each is None where it could not be read, and ``faults`` says why in words.
    """

    began: float
    listed: tuple[Holding, ...] | None = None
    recorded: tuple[Holding, ...] | None = None
    allocatable: frozenset[tuple[str, str]] | None = None
    faults: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether everything could be read."""
        return None not in (self.listed, self.recorded, self.allocatable)
