"""The DRA drivers that are registered: what the plugin watcher does with plugins of type DRAPlugin.

A driver may have several instances, told apart by their endpoints. The one to ask is the newest that is connected,
else the newest; nothing sticks a claim to an instance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sandbox.kubelet.connections import Generation
from sandbox.kubelet.dra.instance import HealthListener, Instance
from sandbox.kubelet.dra.services import chosen, health_service
from sandbox.kubelet.dra.settings import DraManagerSettings
from sandbox.kubelet.dra.wiping import Wiping
from sandbox.kubelet.errors import KubeletError, RegistrationError
from sandbox.kubelet.events import DriverConnection, KubeletEvent, PluginDeregistered, PluginRegistered


class DriverMissingError(KubeletError):
    """No instance of a driver is registered."""

    def __init__(self, driver: str) -> None:
        super().__init__(f"DRA driver {driver} is not registered" if driver else "DRA driver name is empty")
        self.driver = driver


class Drivers:
    """All instances; a handler of the plugin watcher."""

    def __init__(
        self,
        settings: DraManagerSettings,
        generation: Generation,
        listener: HealthListener,
        emit: Callable[[KubeletEvent], None],
    ) -> None:
        self.wiping = Wiping(settings)
        self._settings = settings
        self._generation = generation
        self._listener = listener
        self._emit = emit
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
            changed=lambda: self._changed(instance),
        )
        self._instances.setdefault(name, []).append(instance)
        instance.open(self._listener, self._settings.health_retry_seconds)
        self._emit(PluginRegistered(name, socket, "watcher"))
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
        self._emit(PluginDeregistered(name, socket, not instances))
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

    def _changed(self, instance: Instance) -> None:
        self._emit(DriverConnection(instance.driver, instance.endpoint, instance.connected))
        self._look(instance.driver)

    def _look(self, driver: str) -> None:
        """Start or end the timer that wipes the driver's slices."""
        if any(instance.connected for instance in self._instances.get(driver, ())):
            self.wiping.present(driver)
        else:
            self.wiping.absent(driver)
