"""The device list of one resource as the kubelet sees it, and the streams that follow it.

Every message is the complete list, encoded once per change. A stream keeps the number of the last version it sent and
always sends the newest: it may skip a version that was replaced before it could be sent, but never ends up behind, and
never sends the same version twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from node.events import EventBus
from node.offer import OfferedDevice
from node.values import Value, value
from protos.deviceplugin.v1beta1 import api_pb2

LIMIT = 4 * 1024 * 1024 - 64 * 1024
"""Most bytes of a message: above 4 MiB the kubelet's client loses the resource without a retry."""

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"


class ListTooLarge(Exception):
    """A list that the kubelet would refuse: its size in bytes and number of devices."""

    def __init__(self, resource: str, size: int, devices: int) -> None:
        super().__init__(
            f"resource {resource}: a list of {devices} devices has {size} bytes and the kubelet takes {LIMIT}; "
            "the list shown before stays; split the resource into several by rules"
        )
        self.size = size


def encode(devices: Iterable[OfferedDevice], *, hints: bool = True) -> api_pb2.ListAndWatchResponse:
    """The message with these devices, and with their NUMA nodes if ``hints``.

    A device without NUMA node has no topology (never -1).
    """
    response = api_pb2.ListAndWatchResponse()
    for offered in devices:
        message = response.devices.add(ID=offered.id, health=HEALTHY if offered.healthy else UNHEALTHY)
        if hints and offered.device.numa_node is not None:
            message.topology.nodes.add(ID=offered.device.numa_node)
    return response


@value
class StreamsChanged(Value):
    """The kubelet has opened or ended a stream of this resource; without one, only lists may have changed."""

    resource: str = ""


class DeviceListing:
    """The list of ``resource``; publishes ``StreamsChanged`` whenever a stream opens or ends."""

    def __init__(self, resource: str, bus: EventBus) -> None:
        self.resource = resource
        self.devices: dict[str, OfferedDevice] = {}
        self.streams = 0
        self.held = False
        self._ended = False
        self._bus = bus
        self._message = api_pb2.ListAndWatchResponse()
        self._version = 0
        self._changed = asyncio.Event()

    def update(self, devices: tuple[OfferedDevice, ...], *, hints: bool = True) -> bool:
        """Show these devices; True if the list is another one, which streams send to the kubelet. Raises
        ``ListTooLarge`` and keeps the old list."""
        message = encode(devices, hints=hints)
        size = message.ByteSize()
        if size > LIMIT:
            raise ListTooLarge(self.resource, size, len(devices))
        self.devices = {offered.id: offered for offered in devices}
        if self._version and message == self._message:
            return False
        self._message = message
        self._version += 1
        self._notify()
        return True

    def hold(self) -> None:
        """Hold back changes from streams that have a list; ``release`` sends them."""
        self.held = True

    def release(self) -> None:
        """Send what was held back, and every change from now on."""
        if self.held:
            self.held = False
            self._notify()

    def end(self) -> None:
        """End every stream, including later ones, until ``begin``."""
        self._ended = True
        self._notify()

    def begin(self) -> None:
        """Allow streams again."""
        self._ended = False

    async def followed(self, *, by_any: bool = True) -> None:
        """Wait until a stream is open, or until none is."""
        while (self.streams > 0) != by_any:
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def version(self) -> int:
        """The number of the list, counted from 1; 0: none yet."""
        return self._version

    @property
    def shown(self) -> bool:
        """Whether there is a list at all: an empty one counts, a first one that was too large does not."""
        return self._version > 0

    @property
    def healthy(self) -> int:
        """How many devices are shown healthy."""
        return sum(offered.healthy for offered in self.devices.values())

    async def follow(self) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        """The list now and after every change, until the consumer stops."""
        sent = 0
        self.streams += 1
        self._bus.publish(StreamsChanged(self.resource))
        self._notify()
        try:
            while not self._ended:
                changed = self._changed
                if sent != self._version and not (self.held and sent):
                    sent = self._version
                    yield self._message
                else:
                    await changed.wait()
        finally:
            self.streams -= 1
            self._bus.publish(StreamsChanged(self.resource))
            self._notify()
