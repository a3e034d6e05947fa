"""The kubelet's slot of one resource: how to leave it without the kubelet losing the devices.

Kubelets up to 1.36 keep one client per resource name. Whenever a stream of the resource ends, or a socket of it goes,
they disconnect whoever is in the slot by then and call all its devices unhealthy, so that no order in which one plugin
leaves and another one comes is without a gap. But when the slot is empty there is nobody to disconnect. So the one that
leaves empties it first: a registration that fails does that (inside Register the kubelet asks for options, and gets an
error). After it the end of the old stream, and of the old socket, are nobody's end: the kubelet goes on to show the
devices, and asks the old plugin for them on the connection that it has, until the next, ordinary registration.

Kubelets from 1.37 on keep a client per socket. They refuse the registration, because the socket is connected already,
and nothing has changed.

The price: if both the old and the new plugin are killed in this second, the kubelet shows the devices until the next
plugin comes, and pods that are given one fail as they would without devices.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from plugin.kubelet import KubeletFolders, RegisterRefused, register
from plugin.listing import Listing
from plugin.servicer import OPTIONS, DevicePluginServicer

PATIENCE = 0.3
"""Seconds for a Register call, which takes some milliseconds; the process that ends has to be quick."""
NOTICE = 0.05
"""Seconds in which the kubelet notices that a stream has ended; a successor comes later."""
EMPTIED = "failed to get device plugin options"
"""How a kubelet answers that has dialled, asked and been refused."""


class Slot:
    """The slot of ``resource``, in which the plugin at ``socket`` is."""

    def __init__(
        self, resource: str, socket: Path, folders: KubeletFolders, listing: Listing, servicer: DevicePluginServicer
    ) -> None:
        self._resource = resource
        # The kubelet joins it to its folder, and the result is the path by which it knows the socket already.
        self._endpoint = os.path.relpath(socket, folders.device_plugins)
        self._kubelet = folders.socket
        self._listing = listing
        self._servicer = servicer

    async def empty(self) -> bool:
        """Whether the kubelet was brought to forget who serves the resource; then our streams have ended, too."""
        self._servicer.leaving = True
        try:
            async with asyncio.timeout(PATIENCE):
                await register(self._kubelet, self._resource, self._endpoint, OPTIONS)
        except RegisterRefused as refused:
            emptied = EMPTIED in refused.reason
        except TimeoutError:
            # A call that we give up fails in the kubelet as well.
            emptied = True
        else:
            emptied = False
        if emptied:
            await self._end_streams()
        else:
            self._servicer.leaving = False
        return emptied

    async def _end_streams(self) -> None:
        """While the slot is empty: a stream that ends when a successor is in it ends that one."""
        self._listing.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._listing.followed(by_any=False)
        await asyncio.sleep(NOTICE)

    async def fill(self) -> None:
        """Be in the slot again, so that the kubelet notices our end; for a plugin that nobody has relieved."""
        self._servicer.leaving = False
        self._listing.begin()
        with contextlib.suppress(RegisterRefused, TimeoutError):
            # A kubelet that does not take it is gone or new; then it knows nothing of us that could be wrong.
            async with asyncio.timeout(PATIENCE):
                await register(self._kubelet, self._resource, self._endpoint, OPTIONS)
                await self._listing.followed()
