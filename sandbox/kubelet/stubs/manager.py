"""A device manager with given answers, to test admission, podresources and container starts without plugins.

It implements ``Manager`` and takes the place of the real one in ``Kubelet``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

from sandbox.kubelet.devicemanager import NO_AFFINITY, DeviceNodes
from sandbox.kubelet.plugin_watcher import PluginHandler
from sandbox.kubelet.pod_devices import RunOptions
from sandbox.kubelet.pods import Container, NodeCapacity, Pod
from sandbox.kubelet.stubs.plugin import KEPT_CALLS, StubCall
from sandbox.kubelet.topology import ProviderHints, TopologyHint


class ManagerStub:
    """A device manager with given answers; give it to ``Kubelet(device_manager=...)``.

    Without being told anything it does nothing and knows nothing, as its counterpart of the reference: every pod is
    admitted, no container gets anything. ``calls`` records starts, stops, allocations and container starts.
    """

    def __init__(self) -> None:
        self.calls: deque[StubCall] = deque(maxlen=KEPT_CALLS)
        self._capacity = NodeCapacity({}, {})
        self._allocatable: DeviceNodes = {}
        self._held: dict[tuple[str, str], DeviceNodes] = {}
        self._status: dict[str, dict[str, dict[str, dict[str, str]]]] = {}
        self._allocate: Callable[[Pod, Container, TopologyHint], DeviceNodes | None] = lambda _pod, _own, _hint: None
        self._options: Callable[[Pod, Container], RunOptions | None] = lambda _pod, _own: None
        self._hints: Callable[[Pod, Container | None], ProviderHints] = lambda _pod, _own: {}
        self._handler: PluginHandler | None = None
        self._health_error = ""
        self._is_new_node = False

    def set_capacity(self, capacity: NodeCapacity) -> None:
        """Answer ``capacity``."""
        self._capacity = capacity

    def set_alloc_func(self, function: Callable[[Pod, Container, TopologyHint], DeviceNodes | None]) -> None:
        """Give each container what ``function`` returns; a ``KubeletError`` that it raises refuses the pod."""
        self._allocate = function

    def set_options_func(self, function: Callable[[Pod, Container], RunOptions | None]) -> None:
        """Start each container with what ``function`` returns; a ``KubeletError`` keeps the container waiting."""
        self._options = function

    def set_hints_func(self, function: Callable[[Pod, Container | None], ProviderHints]) -> None:
        """Offer the hints that ``function`` returns; with scope ``pod`` it is called without a container."""
        self._hints = function

    def set_allocatable_devices(self, devices: DeviceNodes) -> None:
        """Answer ``allocatable_devices``."""
        self._allocatable = devices

    def set_status(self, pod_uid: str, status: dict[str, dict[str, dict[str, str]]]) -> None:
        """Answer ``allocated_resources_status`` of one pod."""
        self._status[pod_uid] = status

    def set_watcher_handler(self, handler: PluginHandler | None) -> None:
        """Answer ``watcher_handler``; None, as by default: plugins of type DevicePlugin are refused."""
        self._handler = handler

    def set_health_error(self, error: str) -> None:
        """Answer ``health_error``."""
        self._health_error = error

    def set_should_reset_capacity(self, *, reset: bool) -> None:
        """Answer ``should_reset_capacity``."""
        self._is_new_node = reset

    async def start(self, running: Collection[tuple[str, str]] = ()) -> None:
        """Serve nothing."""
        self.calls.append(StubCall("start", tuple(running)))

    async def stop(self) -> None:
        """End nothing."""
        self.calls.append(StubCall("stop"))

    async def allocate(self, pod: Pod, container: Container, affinity: TopologyHint = NO_AFFINITY) -> None:
        """Record what the alloc function gives; raises what it raises."""
        self.calls.append(StubCall("allocate", (pod.uid, container.name, affinity)))
        given = self._allocate(pod, container, affinity)
        if given:
            self._held[pod.uid, container.name] = given

    async def run_options(
        self, pod: Pod, container: Container, affinity: TopologyHint = NO_AFFINITY
    ) -> RunOptions | None:
        """The options function's answer."""
        self.calls.append(StubCall("run_options", (pod.uid, container.name)))
        return self._options(pod, container)

    def container_hints(self, pod: Pod, container: Container) -> ProviderHints:
        """The hints function's answer."""
        return self._hints(pod, container)

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """The hints function's answer."""
        return self._hints(pod, None)

    def capacity(self) -> NodeCapacity:
        """What was set."""
        return self._capacity

    def raised_allocatable(self, pod_uid: str, allocatable: Mapping[str, int]) -> dict[str, int]:
        """``allocatable`` as it is."""
        return dict(allocatable)

    def allocated_resources_status(self, pod: Pod) -> dict[str, dict[str, dict[str, str]]]:
        """What was set for the pod."""
        return self._status.get(pod.uid, {})

    def allocatable_devices(self) -> DeviceNodes:
        """What was set."""
        return self._allocatable

    def devices_of(self, pod_uid: str, container: str) -> DeviceNodes:
        """What the alloc function gave."""
        return self._held.get((pod_uid, container), {})

    def collect_garbage(self) -> None:
        """Forget nothing."""

    def should_reset_capacity(self) -> bool:
        """What was set."""
        return self._is_new_node

    def watcher_handler(self) -> PluginHandler | None:
        """What was set."""
        return self._handler

    def health_error(self) -> str:
        """What was set."""
        return self._health_error
