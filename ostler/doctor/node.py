"""The node as checks see it: the settings, the places of the node's file systems, and facts that several checks share.

This is the edge: checks get facts from here and decide. Everything can be redirected (to a tree of files in a test, to
the host's root in a container). Checks run in threads, and each shared fact is read once, when the first check asks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from node.inventory.sysfs.device_files import StatDevice, stat_device
from node.kubelet.podresources import socket_below
from node.quiesce import Quiesce
from ostler.agent.api_server import ApiEnvironment
from ostler.config.load import Loaded
from ostler.doctor.answers import (
    AgentAnswers,
    KubeletAnswers,
    NodeAnswer,
    RightAnswer,
    ask_agent,
    ask_kubelet,
    ask_node,
    ask_right,
)
from ostler.doctor.nvml_process import NvmlAnswer, ask_nvml
from ostler.doctor.reading import RunningProcess, processes

if TYPE_CHECKING:
    from node.inventory.facts import NodeFacts, PciFunction
    from node.inventory.model import Device

_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""PCI classes of GPUs: VGA and 3D controllers, other display controllers, processing accelerators."""


class NodeView:
    """One node, read once.

    ``loaded``: the settings with their notes; ``problems``: the faults of the configuration, with which ``loaded`` has
    the defaults. ``host``: where the node's /etc, /run and /var are. ``clock``: Unix seconds; ``pause``: waits for so
    many seconds. ``stat``: reads a device file's numbers. ``uid``: this process's user. ``kubelet_health``: where
    kubelets usually serve their health.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        problems: tuple[str, ...] = (),
        host: Path = Path("/"),
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
        stat: StatDevice = stat_device,
        uid: int | None = None,
        kubelet_health: str = "127.0.0.1:10248",
    ) -> None:
        self.loaded = loaded
        self.problems = problems
        self.settings = loaded.settings
        self.host = host
        self.environment = os.environ if environment is None else environment
        self.clock = clock
        self.pause = pause
        self.stat = stat
        self.uid = os.geteuid() if uid is None else uid
        self.kubelet_health = kubelet_health
        self.agent: Once[AgentAnswers] = Once(lambda: ask_agent(self.settings.socket))
        """The running agent's answers."""
        self.kubelet: Once[KubeletAnswers] = Once(lambda: ask_kubelet(self.pod_resources))
        """The kubelet's answers about devices and pods."""
        self.processes: Once[tuple[RunningProcess, ...]] = Once(lambda: processes(self.proc))
        """Visible processes."""
        self.facts: Once[NodeFacts] = Once(self._read_facts)
        """The kernel's facts about devices, without NVIDIA's driver."""
        self.devices: Once[tuple[Device, ...]] = Once(self._make_devices)
        """Devices derived from ``facts``."""
        self.node: Once[NodeAnswer] = Once(self._ask_node)
        """This machine's Node object, if the API server is used."""
        self.nvml: Once[NvmlAnswer] = Once(self._ask_nvml)
        """The answer of NVIDIA's management library, called in a separate process."""

    @property
    def proc(self) -> Path:
        """The proc file system."""
        return self.settings.roots.proc

    @property
    def sys(self) -> Path:
        """The sys file system."""
        return self.settings.roots.sys

    @property
    def dev(self) -> Path:
        """The node's device files."""
        return self.settings.nvidia.dev_root_mount / "dev"

    @property
    def recorded(self) -> bool:
        """Whether a recorded node is replayed, so that this machine's hardware does not matter."""
        return self.settings.inventory.recorded is not None

    @property
    def kubelet_root(self) -> Path:
        """The configured root folder of the kubelet, above its plugin registry."""
        return self.settings.kubelet.registry_dir.parent

    @property
    def pod_resources(self) -> Path:
        """The socket of the kubelet's pod resources API."""
        return socket_below(self.kubelet_root)

    @property
    def host_network(self) -> bool:
        """Whether this process is in the host's network namespace (the first one shows this setting alone)."""
        return (self.proc / "sys/net/core/dev_weight").exists()

    @property
    def in_pod(self) -> bool:
        """Whether this process runs in a pod."""
        return bool(self.environment.get("KUBERNETES_SERVICE_HOST"))

    @property
    def quiesced(self) -> str | None:
        """Why the driver is quiesced; None if it is not."""
        return Quiesce(self.settings.state_dir / "quiesce.json", self.proc).reason

    def gpu_functions(self, vendor: str) -> tuple[PciFunction, ...]:
        """PCI functions of GPUs of a vendor (``0x10de``), virtual ones too."""
        sysfs = self.facts().sysfs
        return tuple(
            function
            for function in (sysfs.pci if sysfs is not None else ())
            if function.vendor == vendor and function.class_code.startswith(_DISPLAY_CLASSES)
        )

    def _read_facts(self) -> NodeFacts:
        # Imported here, as below: without such a check none of it is loaded.
        from node.inventory.facts import merge
        from node.inventory.source import DriverHolder
        from ostler.cli.scanning import open_sources

        with open_sources(self.settings) as sources:
            return merge(tuple(source.read() for source in sources if not isinstance(source, DriverHolder)))

    def _make_devices(self) -> tuple[Device, ...]:
        from node.inventory.devices import devices_of
        from node.inventory.identity import Identities

        return devices_of(self.facts(), Identities())

    def right(self, verb: str, resource: str, subresource: str = "") -> RightAnswer:
        """Whether the agent's account may do this to objects of core/v1."""
        return ask_right(
            self.settings, ApiEnvironment(self.environment, etc=self.host / "etc"), verb, resource, subresource
        )

    def _ask_node(self) -> NodeAnswer:
        return ask_node(self.settings, ApiEnvironment(self.environment, etc=self.host / "etc"))

    def _ask_nvml(self) -> NvmlAnswer:
        return ask_nvml(self.settings.nvidia.driver_root_mount, self.settings.nvidia.library, self.proc)


Fact = TypeVar("Fact")


class Once(Generic[Fact]):
    """Calls ``read`` at most once; an exception is raised again for every caller."""

    def __init__(self, read: Callable[[], Fact]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._result: tuple[Fact] | BaseException | None = None

    def __call__(self) -> Fact:
        """The fact; waits while another thread reads it."""
        with self._lock:
            if self._result is None:
                try:
                    self._result = (self._read(),)
                except Exception as error:  # noqa: BLE001 - raised below, for every check that asks
                    self._result = error
            result = self._result
        if isinstance(result, BaseException):
            raise result
        return result[0]
