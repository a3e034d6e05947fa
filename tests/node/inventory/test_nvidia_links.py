"""NVLinks as links between devices, and where GPUs are."""

from __future__ import annotations

from node.inventory.facts import NvLink
from node.inventory.model import PeerLink
from node.inventory.nvidia.devices import peer_links
from tests.making.nvidia_facts import a100, devices, function, gpu, mig, node


def test_links_that_are_up_are_counted_by_their_far_end() -> None:
    links = (
        NvLink(0, True, "gpu", "00000000:3B:00.0"),
        NvLink(1, True, "gpu", "00000000:2B:00.0"),
        NvLink(2, True, "gpu", "00000000:3B:00.0"),
        NvLink(3, True, "switch", "00000000:05:00.0"),
        NvLink(4, True, "switch", "00000000:06:00.0"),
        NvLink(5, False, "gpu", "00000000:3B:00.0"),
        NvLink(6, True, "ibmnpu", "00000004:00:00.0"),
        NvLink(7, True, None, None),
        NvLink(8, True, "gpu", "odd"),
    )
    assert peer_links(links) == (PeerLink(None, 2), PeerLink("0000:2b:00.0", 1), PeerLink("0000:3b:00.0", 2))
    assert peer_links(()) == ()


def test_gpus_have_a_place_and_links_and_their_mig_devices_a_place_only() -> None:
    linked = (NvLink(0, True, "switch", "00000000:05:00.0"),)
    found = devices(node(a100(0, mig(0, 0), nvlinks=linked)))
    whole, part = found["gpu-0000-1b-00-0"], found["mig-0000-1b-00-0-0-1"]
    assert whole.location == part.location == function(0).path
    assert (whole.links, part.links) == ((PeerLink(None, 1),), ())


def test_gpu_without_sysfs_has_no_place() -> None:
    assert devices(node(gpu(0), on_bus=0))["gpu-0000-1b-00-0"].location == ""
