"""Parameters for a peer are taken where they ask for nothing, and refused by field, value and fix where they do."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.claims.model import AllocatedConfig, AllocatedDevice, Allocation, ClaimError, ClaimReference, ConfigSource
from driver.devices.view import DoorView, DraDevice
from driver.names import Peer
from driver.parameters.decoding import pairs
from driver.parameters.errors import UnservedParameter
from driver.parameters.options import device_parameters
from driver.parameters.peers import check_served
from kube.bodies import Json, JsonObject
from node.inventory.model import Device, Host
from node.rules import Rule
from tests.making.devices import gpu, mig, rdma

PLACE = "status.allocation.devices.config[0].opaque.parameters"
GPU: JsonObject = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
MIG: JsonObject = {**GPU, "kind": "MigDeviceConfig"}
VF: JsonObject = {"apiVersion": "sriovnetwork.k8snetworkplumbingwg.io/v1alpha1", "kind": "VfConfig"}
MEMORY = "write a quantity of at least 1Mi, as 10Gi; MPS counts whole MiB"
VF_FIELDS = "driver, addVhostMount, ifName, netAttachDefName, netAttachDefNamespace"


def config(peer: Peer, parameters: Json, *requests: str, source: ConfigSource = ConfigSource.CLAIM) -> AllocatedConfig:
    return AllocatedConfig(source, requests, parameters, PLACE, peer)  # type: ignore[arg-type]


def sharing(**fields: Json) -> JsonObject:
    return {**GPU, "sharing": fields}


def mig_sharing(**fields: Json) -> JsonObject:
    return {**MIG, "sharing": fields}


def unserved(field: str, value: str, peer: Peer, fix: str, why: str = "") -> str:
    because = f": {why}" if why else ""
    return f".{field}: {value} is for {peer} and ostler does not support it{because}; {fix}"


@pytest.mark.parametrize(
    ("peer", "parameters"),
    [
        (Peer.NVIDIA, GPU),
        (Peer.NVIDIA, MIG),
        (Peer.NVIDIA, {**GPU, "sharing": None}),
        (Peer.NVIDIA, sharing(strategy="TimeSlicing")),
        (Peer.NVIDIA, sharing(strategy="TimeSlicing", timeSlicingConfig={})),
        (Peer.NVIDIA, sharing(strategy="TimeSlicing", timeSlicingConfig={"interval": "Default"}, mpsConfig=None)),
        (Peer.NVIDIA, {**MIG, "sharing": {"strategy": "TimeSlicing"}}),
        (Peer.DRANET, {}),
        (Peer.DRANET, {"interface": {"name": "", "dhcp": False}, "routes": [], "ethtool": {"features": {}}}),
        (Peer.SRIOV, VF),
        (Peer.SRIOV, {**VF, "driver": "", "ifName": "", "addVhostMount": False}),
    ],
)
def test_what_asks_for_nothing_is_taken(peer: Peer, parameters: JsonObject) -> None:
    check_served(config(peer, parameters), "ostler.dev")


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            sharing(strategy="TimeSlicing", mpsConfig={"defaultActiveThreadPercentage": 50}),
            '.sharing.mpsConfig: {"defaultActiveThreadPercentage": 50} is for strategy MPS; leave it out, or write MPS',
        ),
        (
            sharing(strategy="MPS", timeSlicingConfig={"interval": "Long"}),
            (
                '.sharing.timeSlicingConfig: {"interval": "Long"} is for strategy TimeSlicing; leave it out, or write '
                "TimeSlicing"
            ),
        ),
        (
            sharing(strategy="TimeSlicing", timeSlicingConfig={"interval": "long"}),
            '.sharing.timeSlicingConfig.interval: "long" is not known; write one of Default, Short, Medium, Long',
        ),
        (
            sharing(strategy="TimeSlicing", timeSlicingConfig={"length": 1}),
            ".sharing.timeSlicingConfig.length: gpu.nvidia.com has no such field; it has interval",
        ),
        (
            sharing(strategy="MPS", mpsConfig={"defaultActiveThreadPercentage": 101}),
            (
                ".sharing.mpsConfig.defaultActiveThreadPercentage: 101 is no percentage; write a whole number from 1 "
                "to 100"
            ),
        ),
        (
            sharing(strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "ten"}),
            f'.sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: "ten" must be an amount of memory; {MEMORY}',
        ),
        (
            sharing(strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "1Ki"}),
            f'.sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: "1Ki" is less than a MiB; {MEMORY}',
        ),
        (
            sharing(strategy="MPS", mpsConfig={"defaultPerDevicePinnedMemoryLimit": {"0": True}}),
            f'.sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit."0": true must be an amount of memory; {MEMORY}',
        ),
        (
            sharing(strategy="MPS", mpsConfig={"multiUser": "yes"}),
            '.sharing.mpsConfig.multiUser: "yes" is neither true nor false; write true or false',
        ),
        (
            sharing(strategy="MPS", mpsConfig={"clients": 4}),
            (
                ".sharing.mpsConfig.clients: gpu.nvidia.com has no such field; it has defaultActiveThreadPercentage, "
                "defaultPinnedDeviceMemoryLimit, defaultPerDevicePinnedMemoryLimit, multiUser"
            ),
        ),
        (
            mig_sharing(strategy="MPS", timeSlicingConfig={}),
            ".sharing.timeSlicingConfig: {} is for strategy TimeSlicing; leave it out, or write TimeSlicing",
        ),
        (
            mig_sharing(strategy="TimeSlicing", timeSlicingConfig={}),
            ".sharing.timeSlicingConfig: gpu.nvidia.com has no such field; it has strategy, mpsConfig",
        ),
        (sharing(), ".sharing.strategy: is missing; write TimeSlicing or MPS"),
        ({**GPU, "sharing": "MPS"}, '.sharing: "MPS" is not an object; write an object, or leave it out'),
        ({**GPU, "shared": 1}, ".shared: gpu.nvidia.com has no such field; it has sharing"),
        (
            sharing(strategy="TimeSlicing", replicas=2),
            ".sharing.replicas: gpu.nvidia.com has no such field; it has strategy, mpsConfig, timeSlicingConfig",
        ),
        (
            {**GPU, "kind": "VfioDeviceConfig"},
            unserved(
                "kind",
                '"VfioDeviceConfig"',
                Peer.NVIDIA,
                "leave the parameters out, or keep NVIDIA's driver for claims that pass a GPU to a virtual machine",
            ),
        ),
        (
            {**GPU, "kind": "GpuClaimParameters"},
            '.kind: "GpuClaimParameters" is not known; write one of GpuConfig, MigDeviceConfig, VfioDeviceConfig',
        ),
        (
            {**GPU, "apiVersion": "gpu.nvidia.com/v1alpha1"},
            '.apiVersion: "gpu.nvidia.com/v1alpha1" is not known; write resource.nvidia.com/v1beta1',
        ),
        ({}, ".apiVersion: is missing; write resource.nvidia.com/v1beta1"),
    ],
)
def test_what_nvidias_driver_does_not_know_either_is_refused(parameters: JsonObject, text: str) -> None:
    assert problem(Peer.NVIDIA, parameters) == f"{PLACE}{text}"


def test_a_field_that_dranet_lacks_is_refused() -> None:
    known = "profile, interface, routes, rules, neighbors, ethtool"
    assert problem(Peer.DRANET, {"ifName": ""}) == f"{PLACE}.ifName: dra.net has no such field; it has {known}"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"driver": "vfio-pci"},
            unserved(
                "driver",
                '"vfio-pci"',
                Peer.SRIOV,
                "bind it on the node, and select the device by its attribute driver of ostler.dev",
                "ostler binds no kernel driver",
            ),
        ),
        (
            {"addVhostMount": True},
            unserved(
                "addVhostMount",
                "true",
                Peer.SRIOV,
                "write kind NicConfig with vhostNet: true for the driver ostler.dev",
            ),
        ),
        (
            {"netAttachDefName": "a"},
            unserved(
                "netAttachDefName",
                '"a"',
                Peer.SRIOV,
                "write what it sets up as NicConfig with interface for the driver ostler.dev",
                "ostler runs no CNI plugin",
            ),
        ),
        (
            {"ifName": "eth0"},
            '.ifName: "eth0" is the pod\'s own interface; write another name, as net1',
        ),
        (
            {"mtu": 1500},
            f".mtu: {Peer.SRIOV} has no such field; it has {VF_FIELDS}",
        ),
    ],
)
def test_what_the_sriov_driver_would_set_up_is_refused(fields: JsonObject, text: str) -> None:
    assert problem(Peer.SRIOV, {**VF, **fields}) == f"{PLACE}{text}"


def test_a_doubled_key_is_refused() -> None:
    parsed = json.loads('{"interface": {"name": "", "name": ""}}', object_pairs_hook=pairs)
    assert problem(Peer.DRANET, parsed) == f"{PLACE}.interface.name: the key occurs twice; write it once"


def test_the_class_is_named_where_an_administrator_wrote_it() -> None:
    with pytest.raises(UnservedParameter, match=r"parameters \(from the DeviceClass\)\.sharing\.strategy"):
        check_served(config(Peer.NVIDIA, sharing(strategy="mps"), source=ConfigSource.CLASS), "ostler.dev")


@given(
    st.sampled_from(list(Peer)),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(["MPS", "TimeSlicing"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["sharing", "strategy", "interface", "driver", "kind", "x"]), inner)
        ),
        max_leaves=8,
    ),
)
def test_whatever_is_written_is_taken_or_refused_in_words(peer: Peer, content: Json) -> None:
    for kind in (GPU, MIG, VF, {}):
        parameters: JsonObject = {**kind, **(content if isinstance(content, dict) else {"sharing": content})}
        text = PLACE
        try:
            check_served(config(peer, parameters), "ostler.dev")
        except UnservedParameter as error:
            text = str(error)
        assert text.startswith(PLACE)
        assert len(text) < 1000


def refused(config: AllocatedConfig, *devices: tuple[str, Device]) -> bool:
    results = tuple(AllocatedDevice(request, "node-a", device.name) for request, device in devices)
    view = DoorView(tuple(DraDevice(device, Rule("a.b/c"), True) for _, device in devices), Host())
    try:
        device_parameters(Allocation(ClaimReference("a", "b", "c"), results, (config,)), view, "ostler.dev")
    except ClaimError:
        return True
    return False


def test_parameters_for_a_request_are_looked_at_where_its_device_is_ours() -> None:
    bad = sharing(strategy="mps")
    assert refused(config(Peer.NVIDIA, bad, "gpu"), ("gpu", gpu(0)))
    assert refused(config(Peer.NVIDIA, bad, "gpu"), ("gpu/large", gpu(0)))
    assert refused(config(Peer.NVIDIA, bad, "nic"), ("nic", rdma(3))), "nobody else serves this request"
    assert not refused(config(Peer.NVIDIA, bad, "other"), ("gpu", gpu(0)))
    assert not refused(config(Peer.NVIDIA, bad, "gpu/small"), ("gpu/large", gpu(0)))


def test_parameters_for_all_requests_are_for_the_devices_published_as_the_peers() -> None:
    assert refused(config(Peer.NVIDIA, sharing(strategy="mps")), ("nic", rdma(3)), ("gpu", mig(1)))
    assert not refused(config(Peer.NVIDIA, sharing(strategy="mps")), ("nic", rdma(3)))
    assert refused(config(Peer.DRANET, {"profile": "fast"}), ("nic", rdma(3)))
    assert not refused(config(Peer.DRANET, {"profile": "fast"}), ("gpu", gpu(0)))


def problem(peer: Peer, parameters: Json) -> str:
    with pytest.raises(UnservedParameter) as raised:
        check_served(config(peer, parameters), "ostler.dev")
    return str(raised.value)


def test_parameters_nested_without_end_are_refused_in_words() -> None:
    deep: Json = "x"
    for _ in range(5000):
        deep = [deep]
    text = problem(Peer.DRANET, {"routes": deep})
    assert text.startswith(f"{PLACE}.routes[0]")
    assert len(text) < 500
    assert len(problem(Peer.NVIDIA, sharing(strategy="TimeSlicing", mpsConfig=deep))) < 500
