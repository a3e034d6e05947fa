"""The DRA drivers that are registered, and the deletion of the ResourceSlices of those that are away.

``Drivers`` handles plugins of type DRAPlugin for the plugin watcher. A driver may have several instances, told apart by
their endpoints. The kubelet asks the newest that is connected, else the newest; nothing binds a claim to an instance.

A kubelet deletes all slices of its node when it starts, and a driver's when no instance of it was connected for too
long. A timer keeps its due time until the driver is connected again. Attempts that fail are repeated a few times and
then given up silently, as in kubelets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from sandbox.kubelet.dra.instance import HealthListener, Instance, chosen, health_service
from sandbox.kubelet.dra.settings import ApiFailed, DraManagerSettings
from sandbox.kubelet.errors import KubeletError, RegistrationError
from sandbox.kubelet.events import DriverConnection, EventFeed, PluginDeregistered, PluginRegistered
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.plugin_calls import PluginCalls

log = logging.getLogger("ostler.sandbox.kubelet")


class DriverMissingError(KubeletError):
    """No instance of a driver is registered."""

    def __init__(self, driver: str) -> None:
        super().__init__(f"DRA driver {driver} is not registered" if driver else "DRA driver name is empty")


class Drivers:
    """All instances; a handler of the plugin watcher."""

    def __init__(
        self,
        settings: DraManagerSettings,
        generation: Generation,
        listener: HealthListener,
        feed: EventFeed,
    ) -> None:
        self.wiping = Wiping(settings)
        self._settings = settings
        self._generation = generation
        self._listener = listener
        self._feed = feed
        self._calls = PluginCalls(
            feed, settings.pending_seconds, f"its pod waits, for up to {settings.call_seconds:g} s"
        )
        self._instances: dict[str, list[Instance]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def validate(self, name: str, socket: str, versions: Sequence[str]) -> None:
        """Raise ``RegistrationError`` unless the driver lists a service that the kubelet knows."""
        chosen(name, socket, versions)

    async def register(self, name: str, socket: str, versions: Sequence[str]) -> None:
        """Add an instance and start to connect; raises ``RegistrationError`` for an endpoint that is known."""
        service = chosen(name, socket, versions)
        if any(instance.endpoint == socket for instance in self._instances.get(name, ())):
            raise RegistrationError(f"endpoint {socket} already registered for DRA driver plugin {name}")
        instance = Instance(
            name,
            socket,
            service,
            health_service(self._generation, versions),
            call_seconds=self._settings.call_seconds,
            calls=self._calls,
            connections=self,
        )
        self._instances.setdefault(name, []).append(instance)
        instance.open(self._listener, self._settings.health_retry_seconds)
        self._feed.emit(PluginRegistered(name, socket, "watcher"))
        self._look(name)

    def deregister(self, name: str, socket: str) -> None:
        """Forget an instance and let its connection close; an unknown one is no error."""
        instances = self._instances.get(name, [])
        found = next((instance for instance in instances if instance.endpoint == socket), None)
        if found is None:
            return
        instances.remove(found)
        if not instances:
            del self._instances[name]
        closing = asyncio.create_task(found.close(), name=f"close {socket}")
        self._leaving.add(closing)
        closing.add_done_callback(self._leaving.discard)
        self._feed.emit(PluginDeregistered(name, socket, not instances))
        self._look(name)

    def get(self, driver: str) -> Instance:
        """The instance to ask; raises ``DriverMissingError``."""
        instances = self._instances.get(driver, [])
        if not instances:
            raise DriverMissingError(driver)
        return next((instance for instance in reversed(instances) if instance.connected), instances[-1])

    def instances(self, driver: str) -> tuple[Instance, ...]:
        """The instances of a driver in the order of their registration."""
        return tuple(self._instances.get(driver, ()))

    def names(self) -> tuple[str, ...]:
        """Drivers with an instance, sorted."""
        return tuple(sorted(self._instances))

    async def close(self) -> None:
        """End all connections and timers."""
        await self.wiping.close()
        instances = [instance for each in self._instances.values() for instance in each]
        self._instances = {}
        await asyncio.gather(*self._leaving, *(instance.close() for instance in instances))

    def connection_changed(self, instance: Instance) -> None:
        """See ``ConnectionListener``."""
        self._feed.emit(DriverConnection(instance.driver, instance.endpoint, instance.connected))
        self._look(instance.driver)

    def _look(self, driver: str) -> None:
        """Start or end the timer that wipes the driver's slices."""
        if any(instance.connected for instance in self._instances.get(driver, ())):
            self.wiping.present(driver)
        else:
            self.wiping.absent(driver)


class Wiping:
    """The timers, and the deletions under way; without an API server it does nothing."""

    def __init__(self, settings: DraManagerSettings) -> None:
        self._settings = settings
        self._tasks: dict[str | None, asyncio.Task[None]] = {}
        self.wiped: list[str | None] = []
        """Drivers whose slices were deleted since the start, in this order; None for all at the start."""

    def start(self) -> None:
        """Delete the slices of all drivers, since none is there yet."""
        self._schedule(None, 0.0)

    def absent(self, driver: str) -> None:
        """No instance of the driver is connected; a running timer continues."""
        self._schedule(driver, self._settings.wiping_seconds)

    def present(self, driver: str) -> None:
        """An instance is connected: its timer ends."""
        task = self._tasks.pop(driver, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End everything."""
        tasks, self._tasks = tuple(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _schedule(self, driver: str | None, seconds: float) -> None:
        running = self._tasks.get(driver)
        if self._settings.api is None or (running is not None and not running.done()):
            return
        self._tasks[driver] = asyncio.create_task(self._wipe(driver, seconds), name=f"wipe {driver or 'all'}")

    async def _wipe(self, driver: str | None, seconds: float) -> None:
        await asyncio.sleep(seconds)
        for pause in (*self._settings.wipe_retries, None):
            try:
                assert self._settings.api is not None
                await self._settings.api.delete_slices(driver)
            except ApiFailed as error:
                log.info("deleting ResourceSlices failed", extra={"driver": driver or "", "error": str(error)})
                if pause is None:
                    return
                await asyncio.sleep(pause)
            else:
                self.wiped.append(driver)
                return
