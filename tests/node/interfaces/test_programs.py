"""BPF programs on an interface: those of the node are kept or detached as the claim says, those of a pod never stay."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from node.interfaces import ebpf
from node.interfaces.links import change_link, links
from node.interfaces.namespace import NetworkNamespace
from tests.making.network_namespaces import TestNamespace
from tests.node.interfaces.conftest import PodsNode

pytestmark = pytest.mark.needs_root

_CLASSIFIER, _XDP = 3, 6
_LOAD, _ATTACH, _LINK_CREATE = 5, 8, 28
_TCX_INGRESS, _XDP_ATTACH = 46, 37


@contextmanager
def program(kind: int) -> Iterator[int]:
    """A program that lets everything pass, as a descriptor; skips without bpf(2)."""
    instructions = struct.pack("=BBhi", 0xB7, 0, 0, 2 if kind == _XDP else 0) + struct.pack("=BBhi", 0x95, 0, 0, 0)
    code, licence = ctypes.create_string_buffer(instructions, 16), ctypes.create_string_buffer(b"GPL")
    request = struct.pack("=IIQQIIQI", kind, 2, ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0, 0)
    try:
        descriptor, _ = ebpf._call(_LOAD, request + bytes(80))
    except OSError as error:
        pytest.skip(f"needs the right to load BPF programs: {error}")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Programs:
    """Attaches programs in a namespace, and tells what is attached."""

    def __init__(self, stack: ExitStack, namespace: TestNamespace, name: str) -> None:
        self.stack, self.namespace, self.name = stack, namespace, name

    @property
    def index(self) -> int:
        with NetworkNamespace(self.namespace.path) as namespace, namespace.netlink() as netlink:
            return next(link.index for link in links(netlink) if link.name == self.name)

    def tcx(self, *, by_link: bool) -> None:
        descriptor, index = self.stack.enter_context(program(_CLASSIFIER)), self.index
        if by_link:
            request = struct.pack("=IIIIQQ", descriptor, index, _TCX_INGRESS, 0, 0, 0)
            link, _ = self.namespace.run(lambda: ebpf._call(_LINK_CREATE, request))
            self.stack.callback(os.close, link)
        else:
            request = struct.pack("=IIIIIIQ", index, descriptor, _TCX_INGRESS, 0, 0, 0, 0)
            try:
                self.namespace.run(lambda: ebpf._call(_ATTACH, request))
            except OSError as error:
                pytest.skip(f"needs tcx in the kernel: {error}")

    def xdp(self) -> None:
        """By a BPF link, as libxdp and Cilium attach them."""
        descriptor, index = self.stack.enter_context(program(_XDP)), self.index
        request = struct.pack("=IIIIQQ", descriptor, index, _XDP_ATTACH, 0, 0, 0)
        link, _ = self.namespace.run(lambda: ebpf._call(_LINK_CREATE, request))
        self.stack.callback(os.close, link)

    def attached(self) -> int:
        with NetworkNamespace(self.namespace.path) as namespace, namespace.netlink() as netlink:
            [link] = [each for each in links(netlink) if each.name == self.name]
            return len(ebpf.xdp_ids(link)) + len(namespace.run(lambda: ebpf.tcx_ids(link.index)))


@pytest.mark.parametrize("keep", [True, False])
def test_programs_of_the_node_are_kept_or_detached_as_the_claim_says(node: PodsNode, keep: bool) -> None:
    interface = node.interface(name="rail0", addresses=(), keep_ebpf=keep)
    with ExitStack() as stack:
        here = Programs(stack, node.host, "v0")
        here.tcx(by_link=False)
        here.tcx(by_link=True)
        here.xdp()
        assert here.attached() == 3
        setup = node.look(interface)
        node.attach(interface, setup)
        assert Programs(stack, node.pod, "rail0").attached() == (3 if keep else 0)
        assert node.detach(interface, setup)
        assert here.attached() == (3 if keep else 0)


@pytest.mark.parametrize("returned", [False, True], ids=["taken back", "given back by the kernel"])
def test_programs_of_a_pod_do_not_see_the_nodes_traffic(node: PodsNode, returned: bool) -> None:
    interface = node.interface(name="rail0", addresses=())
    with ExitStack() as stack:
        here = Programs(stack, node.host, "v0")
        here.xdp()
        setup = node.look(interface)
        node.attach(interface, setup)
        there = Programs(stack, node.pod, "rail0")
        there.tcx(by_link=False)
        there.tcx(by_link=True)
        assert there.attached() == 3
        if returned:
            with (
                NetworkNamespace(node.host.path) as host,
                NetworkNamespace(node.pod.path) as pod,
                pod.netlink() as netlink,
            ):
                change_link(netlink, there.index, namespace=host.fileno())
        assert node.detach(interface, setup)
        assert here.attached() == 1
        assert node.look(interface) == setup
