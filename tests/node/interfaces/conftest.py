"""A node's and a pod's network namespace, with a NIC on the node: one end of a veth pair, the other is the fabric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from node.interfaces.kernel import KernelMover
from node.interfaces.model import AttachedInterface, HostSetup, InterfaceSettings, MovableInterface
from tests.making.network_namespaces import TestNamespace, namespaces

DEVICE = "nic-0000-86-00-0"


class PodsNode:
    """A node with the interface ``v0``; calls of the mover happen in its namespace."""

    def __init__(self, host: TestNamespace, pod: TestNamespace) -> None:
        self.host, self.pod = host, pod
        self.steps: list[str] = []
        self.mover = KernelMover(before=self.steps.append)
        host.ip(
            "link set lo up",
            "link add v0 type veth peer name v1",
            "link set v0 address 02:00:00:00:86:00",
            "link set v1 up",
        )

    def interface(self, **settings: Any) -> MovableInterface:
        return MovableInterface(DEVICE, "v0", InterfaceSettings(**settings))

    def look(self, interface: MovableInterface) -> HostSetup:
        return self.host.run(lambda: self.mover.look(interface))

    def attach(
        self, interface: MovableInterface, setup: HostSetup | None = None, pod: TestNamespace | None = None
    ) -> AttachedInterface:
        known, path = setup or self.look(interface), (pod or self.pod).path
        return self.host.run(lambda: self.mover.attach(interface, known, path))

    def detach(
        self, interface: MovableInterface, setup: HostSetup, pod: TestNamespace | None = None, *, known: bool = True
    ) -> str:
        """``known``: the caller knows where the interface may be."""
        path = (pod or self.pod).path if known else None
        return self.host.run(lambda: self.mover.detach(interface, setup, path))


@pytest.fixture
def node() -> Iterator[PodsNode]:
    with namespaces(2) as (host, pod):
        yield PodsNode(host, pod)
