"""Peers' domains: the names of their drivers, on their devices only, so that their users' claims run unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from driver.devices.description import slice_device
from driver.names import Peer
from tests.driver.devices.recorded import view
from tests.driver.devices.scheduling import DeviceScheduler, claim, matching, request, slices

Json = dict[str, Any]


def domain(node: str, name: str, *peers: Peer) -> Json:
    """The values of the first peer's domain."""
    offered = view(node).device(name)
    assert offered is not None
    found: Json = slice_device(offered, peers)
    prefix = f"{peers[0]}/"
    sections = {**found["attributes"], **found.get("capacity", {})}
    return {
        key.removeprefix(prefix): next(iter(each.values())) for key, each in sections.items() if key.startswith(prefix)
    }


def test_no_domain_is_there_without_the_option() -> None:
    for node in ("h100-sxm-8", "sriov-2"):
        for offered in view(node).devices:
            attributes = slice_device(offered)["attributes"]
            assert isinstance(attributes, dict)
            assert {key.partition("/")[0] for key in attributes if "/" in key} <= {"resource.kubernetes.io"}


def test_a_gpu_has_all_that_nvidias_driver_says() -> None:
    found = domain("h100-sxm-8", "gpu-0000-1b-00-0", Peer.NVIDIA)
    assert set(found) == {
        "type",
        "uuid",
        "productName",
        "brand",
        "architecture",
        "cudaComputeCapability",
        "driverVersion",
        "cudaDriverVersion",
        "addressingMode",
        "gpuModuleID",
        "memory",
    }
    assert found["productName"] == "NVIDIA H100 80GB HBM3"


def test_a_mig_device_has_profile_parent_and_capacities_in_nvidias_domain_too() -> None:
    found = domain("a100-mig-4", "mig-0000-81-00-0-2-1", Peer.NVIDIA)
    assert {"profile", "parentUUID", "multiprocessors", "memory", "ofaEngines"} <= set(found)


def test_a_nic_has_what_dranet_says_of_it() -> None:
    assert domain("sriov-2", "nic-0000-17-00-2", Peer.DRANET) == {
        "ifName": "ens1f0v0",
        "rdma": True,
        "rdmaDevice": "mlx5_2",
        "numaNode": 0,
        "mac": "12:f2:ef:f1:f5:89",
        "state": "up",
        "mtu": 1500,
        "pciAddress": "0000:17:00.2",
        "encapsulation": "ether",
        "type": "device",
        "sriov": False,
        "isSriovVf": True,
        "virtual": False,
    }


def test_a_virtual_function_has_what_the_sriov_driver_says_of_it() -> None:
    assert domain("sriov-2", "nic-0000-17-00-2", Peer.SRIOV) == {
        "vendor": "15b3",
        "deviceID": "101e",
        "pciAddress": "0000:17:00.2",
        "PFName": "ens1f0np0",
        "pfPciAddress": "0000:17:00.0",
        "vfID": 0,
        "rdmaCapable": True,
        "linkType": "ethernet",
        "EswitchMode": "legacy",
    }
    offered = view("sriov-2").device("nic-0000-17-00-2")
    assert offered is not None
    attributes = slice_device(offered, (Peer.SRIOV,))["attributes"]
    assert isinstance(attributes, dict)
    assert attributes["k8s.cni.cncf.io/resourceName"] == {"string": "example.com/nic"}
    assert attributes["k8s.cni.cncf.io/deviceID"] == {"string": "0000:17:00.2"}


@pytest.mark.parametrize(
    ("node", "name", "peer"),
    [
        ("h100-sxm-8", "gpu-0000-1b-00-0", Peer.DRANET),
        ("h100-sxm-8", "gpu-0000-1b-00-0", Peer.SRIOV),
        ("h100-sxm-8", "rdma-0000-18-00-0", Peer.NVIDIA),
        ("h100-sxm-8", "rdma-0000-18-00-0", Peer.SRIOV),
        ("mi300x-8", "gpu-0000-08-00-0", Peer.NVIDIA),
    ],
)
def test_a_peer_says_nothing_of_a_device_that_is_not_its_own(node: str, name: str, peer: Peer) -> None:
    assert domain(node, name, peer) == {}


NVIDIAS_CLAIMS: dict[str, tuple[str, Json, int]] = {
    "one GPU": ("h100-sxm-8", claim(request("gpu", "gpu.nvidia.com")), 1),
    "GPUs of a product with enough memory": (
        "h100-sxm-8",
        claim(
            request(
                "gpus",
                "gpu.nvidia.com",
                count=2,
                selector=(
                    'device.attributes["gpu.nvidia.com"].productName.lowerAscii().matches("^.*h100.*$") && '
                    'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0'
                ),
            )
        ),
        2,
    ),
    "GPUs of an architecture and compute capability": (
        "a100-sxm-8",
        claim(
            request(
                "gpu",
                "gpu.nvidia.com",
                selector=(
                    'device.attributes["gpu.nvidia.com"].architecture == "Ampere" && '
                    'device.attributes["gpu.nvidia.com"].cudaComputeCapability.isGreaterThan(semver("7.5.0"))'
                ),
            )
        ),
        1,
    ),
    "MIG devices of one GPU by profile": (
        "a100-mig-4",
        claim(
            *(
                request(
                    f"mig-{number}",
                    "mig.nvidia.com",
                    selector='device.attributes["gpu.nvidia.com"].profile == "1g.5gb"',
                )
                for number in range(3)
            ),
            constraints=[matching("gpu.nvidia.com/parentUUID", *(f"mig-{number}" for number in range(3)))],
        ),
        3,
    ),
}


@pytest.mark.parametrize("what", NVIDIAS_CLAIMS)
def test_a_claim_written_for_nvidias_driver_is_allocated_unchanged(what: str) -> None:
    node, wanted, count = NVIDIAS_CLAIMS[what]
    found = DeviceScheduler(slices(view(node).devices, (Peer.NVIDIA,))).allocate(wanted)
    assert found is not None
    assert len(set(found[1])) == count
