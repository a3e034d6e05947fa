"""Multus takes the devices of a claim: what it reads of claims and slices (multus-cni#1492), on ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from driver.claims.model import AllocatedConfig, ConfigSource
from driver.devices.description import TEXT_BYTES, slice_device
from driver.names import Peer
from driver.parameters.errors import UnservedParameter
from driver.parameters.peers import check_served
from tests.driver.devices.recorded import view
from tests.driver.devices.scheduling import DRIVER, DeviceScheduler, claim, matching, request, slices

Json = dict[str, Any]
RDMA = 'device.attributes["ostler.dev"].type == "rdma"'


class NoNetwork(Exception):
    """Multus gives the pod no network."""


def multus_devices(pod: Json, claims: Mapping[str, Json], published: Sequence[Json]) -> dict[str, list[str]]:
    """The device ids by resource name that Multus finds for a pod; the networks of a pod ask for them by that name.

    It looks at every device of every claim in the pod's status, whoever's it is, and fails if one lacks an attribute.
    """
    found: dict[str, list[str]] = {}
    for each in pod["status"]["resourceClaimStatuses"]:
        for result in claims[each["resourceClaimName"]]["status"]["allocation"]["devices"]["results"]:
            pool = [
                device
                for one in published
                if (one["spec"]["driver"], one["spec"]["pool"]["name"]) == (result["driver"], result["pool"])
                for device in one["spec"]["devices"]
            ]
            attributes: Json = next((device["attributes"] for device in pool if device["name"] == result["device"]), {})
            try:
                name, device_id = (
                    attributes[f"k8s.cni.cncf.io/{key}"]["string"] for key in ("resourceName", "deviceID")
                )
            except KeyError as missing:
                raise NoNetwork(f"device {result['device']} has no {missing}") from missing
            found.setdefault(name, []).append(device_id)
    return found


def allocated(node: str, wanted: Json, *peers: Peer) -> tuple[Json, dict[str, Json], list[Json]]:
    """A pod with this claim, the claims by name, and the slices."""
    published = slices(view(node).devices, peers)
    scheduler = DeviceScheduler(published)
    made = scheduler.allocate(wanted)
    assert made is not None
    pod = {"status": {"resourceClaimStatuses": [{"name": "devices", "resourceClaimName": "pod-devices-x7k2p"}]}}
    return pod, {"pod-devices-x7k2p": scheduler.held[made[0]]}, published


def test_a_gpu_and_the_nic_beside_it_in_one_claim() -> None:
    both = claim(
        request("gpu"), request("nic", "nic.ostler.dev", selector=RDMA), constraints=[matching(f"{DRIVER}/switch")]
    )
    found = multus_devices(*allocated("h100-sxm-8", both, Peer.MULTUS))
    assert sorted(len(ids) for ids in found.values()) == [1, 1]
    addresses = [each for ids in found.values() for each in ids]
    assert {(address[:4], len(address)) for address in addresses} == {("0000", 12)}, "PCI addresses, for CNI plugins"


def test_several_virtual_functions_of_one_resource_are_one_list() -> None:
    wanted = claim(
        request(
            "vfs",
            "nic.ostler.dev",
            count=2,
            selector='device.attributes["ostler.dev"].?sriovFunction.orValue("") == "vf"',
        )
    )
    found = multus_devices(*allocated("sriov-2", wanted, Peer.MULTUS))
    ((name, ids),) = found.items()
    assert name == "example.com/nic", "what a network writes as k8s.v1.cni.cncf.io/resourceName"
    assert len(set(ids)) == 2


def test_without_the_option_multus_refuses_a_claim_with_a_gpu() -> None:
    both = claim(request("gpu"), request("nic", "nic.ostler.dev"))
    with pytest.raises(NoNetwork, match=r"has no .k8s\.cni\.cncf\.io/resourceName."):
        multus_devices(*allocated("h100-sxm-8", both))
    with pytest.raises(NoNetwork):
        multus_devices(*allocated("h100-sxm-8", both, Peer.SRIOV))


@pytest.mark.parametrize("node", ["h100-sxm-8", "a100-mig-4", "sriov-2", "mi300x-cpx-8"])
def test_every_device_has_both_attributes(node: str) -> None:
    for offered in view(node).devices:
        attributes = slice_device(offered, tuple(Peer))["attributes"]
        assert isinstance(attributes, dict)
        for key in ("resourceName", "deviceID"):
            assert attributes[f"k8s.cni.cncf.io/{key}"], offered.device.name
        assert len(attributes) <= 32
        assert len(offered.rule.resource_of(offered.device)) <= TEXT_BYTES


def test_parameters_for_multus_are_refused() -> None:
    config = AllocatedConfig(ConfigSource.CLAIM, (), {"vlan": 100}, "PLACE", Peer.MULTUS)
    with pytest.raises(UnservedParameter) as caught:
        check_served(config, DRIVER)
    assert str(caught.value) == (
        "PLACE.vlan: k8s.cni.cncf.io is Multus, which reads no parameters of claims; write what the network needs into "
        "its NetworkAttachmentDefinition"
    )
    empty = AllocatedConfig(ConfigSource.CLAIM, (), {}, "PLACE", Peer.MULTUS)
    assert check_served(empty, DRIVER) is None
