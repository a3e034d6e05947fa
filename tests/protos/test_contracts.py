"""Packages, services, names and numbers of the contracts, held against the published field tables."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.protobuf.descriptor import FileDescriptor

from protos.deviceplugin.v1beta1 import api_pb2 as deviceplugin
from protos.dra.v1 import api_pb2 as dra_v1
from protos.dra.v1beta1 import api_pb2 as dra_v1beta1
from protos.drahealth.v1 import api_pb2 as health_v1
from protos.drahealth.v1alpha1 import api_pb2 as health_v1alpha1
from protos.generate import main as generate
from protos.pluginregistration.v1 import api_pb2 as registration
from protos.podresources.v1 import api_pb2 as podresources

DEVICEPLUGIN = """
AllocateRequest container_requests=1
AllocateResponse container_responses=1
CDIDevice name=1
ContainerAllocateRequest devices_ids=1
ContainerAllocateResponse envs=1 mounts=2 devices=3 annotations=4 cdi_devices=5
ContainerPreferredAllocationRequest available_deviceIDs=1 must_include_deviceIDs=2 allocation_size=3
ContainerPreferredAllocationResponse deviceIDs=1
Device ID=1 health=2 topology=3
DevicePluginOptions pre_start_required=1 get_preferred_allocation_available=2
DeviceSpec container_path=1 host_path=2 permissions=3
Empty
ListAndWatchResponse devices=1
Mount container_path=1 host_path=2 read_only=3
NUMANode ID=1
PreStartContainerRequest devices_ids=1
PreStartContainerResponse
PreferredAllocationRequest container_requests=1
PreferredAllocationResponse container_responses=1
RegisterRequest version=1 endpoint=2 resource_name=3 options=4
TopologyInfo nodes=1
"""
REGISTRATION = """
InfoRequest
PluginInfo type=1 name=2 endpoint=3 supported_versions=4
RegistrationStatus plugin_registered=1 error=2
RegistrationStatusResponse
"""
PODRESOURCES = """
AllocatableResourcesRequest
AllocatableResourcesResponse devices=1 cpu_ids=2 memory=3
CDIDevice name=1
ClaimResource cdi_devices=1 driver_name=2 pool_name=3 device_name=4 share_id=5
ContainerDevices resource_name=1 device_ids=2 topology=3
ContainerMemory memory_type=1 size=2 topology=3
ContainerResources name=1 devices=2 cpu_ids=3 memory=4 dynamic_resources=5
DynamicResource claim_name=2 claim_namespace=3 claim_resources=4
GetPodResourcesRequest pod_name=1 pod_namespace=2
GetPodResourcesResponse pod_resources=1
ListPodResourcesRequest
ListPodResourcesResponse pod_resources=1
NUMANode ID=1
PodResources name=1 namespace=2 containers=3 cpu_ids=4 memory=5
TopologyInfo nodes=1
"""
DRA = """
Claim namespace=1 uid=2 name=3
Device request_names=1 pool_name=2 device_name=3 cdi_device_ids=4{share}
NodePrepareResourceResponse devices=1 error=2
NodePrepareResourcesRequest claims=1
NodePrepareResourcesResponse claims=1
NodeUnprepareResourceResponse error=1
NodeUnprepareResourcesRequest claims=1
NodeUnprepareResourcesResponse claims=1
"""
HEALTH = """
DeviceHealth device=1 health=2 last_updated_time=3 health_check_timeout_seconds=4 message=5
DeviceIdentifier pool_name=1 device_name=2
NodeWatchResourcesRequest
NodeWatchResourcesResponse devices=1
"""
CONTRACTS = [
    (deviceplugin, "v1beta1", DEVICEPLUGIN),
    (registration, "pluginregistration", REGISTRATION),
    (podresources, "v1", PODRESOURCES),
    (dra_v1, "k8s.io.kubelet.pkg.apis.dra.v1", DRA.format(share=" share_id=5")),
    (dra_v1beta1, "k8s.io.kubelet.pkg.apis.dra.v1beta1", DRA.format(share="")),
    (health_v1, "v1", HEALTH),
    (health_v1alpha1, "v1alpha1", HEALTH),
]
SERVICES = {
    "v1beta1.Registration": ["Register"],
    "v1beta1.DevicePlugin": [
        "GetDevicePluginOptions", "ListAndWatch", "GetPreferredAllocation", "Allocate", "PreStartContainer",
    ],
    "pluginregistration.Registration": ["GetInfo", "NotifyRegistrationStatus"],
    "v1.PodResourcesLister": ["List", "GetAllocatableResources", "Get"],
    "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin": ["NodePrepareResources", "NodeUnprepareResources"],
    "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin": ["NodePrepareResources", "NodeUnprepareResources"],
    "v1.DRAResourceHealth": ["NodeWatchResources"],
    "v1alpha1.DRAResourceHealth": ["NodeWatchResources"],
}  # fmt: skip


def described(file: FileDescriptor) -> list[str]:
    return [
        " ".join([name, *(f"{field.name}={field.number}" for field in message.fields)])
        for name, message in sorted(file.message_types_by_name.items())
    ]


@pytest.mark.parametrize(("module", "package", "table"), CONTRACTS, ids=[package for _, package, _ in CONTRACTS])
def test_messages_have_the_published_names_and_numbers(module: object, package: str, table: str) -> None:
    file: FileDescriptor = module.DESCRIPTOR  # type: ignore[attr-defined]
    assert file.package == package
    assert described(file) == table.strip().splitlines()


def test_services_have_the_published_methods() -> None:
    found = {
        service.full_name: [method.name for method in service.methods]
        for module, _, _ in CONTRACTS
        for service in module.DESCRIPTOR.services_by_name.values()
    }
    assert found == SERVICES


def test_streams_are_where_they_belong() -> None:
    streams = {
        f"{service.name}.{method.name}"
        for module, _, _ in CONTRACTS
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if method.server_streaming or method.client_streaming
    }
    assert streams == {"DevicePlugin.ListAndWatch", "DRAResourceHealth.NodeWatchResources"}


def test_numa_node_zero_is_an_empty_message_on_the_wire() -> None:
    message = deviceplugin.TopologyInfo(nodes=[deviceplugin.NUMANode(ID=0)])
    assert message.SerializeToString() == b"\x0a\x00"


def test_health_values_have_the_published_numbers() -> None:
    for module in (health_v1, health_v1alpha1):
        assert dict(module.HealthStatus.items()) == {"UNKNOWN": 0, "HEALTHY": 1, "UNHEALTHY": 2}


def test_all_contracts_load_in_one_process_without_a_warning() -> None:
    names = [f"protos.{module.__name__.removeprefix('protos.')}_grpc" for module, _, _ in CONTRACTS]
    code = "import " + ", ".join([*names, "protos.agent.v1alpha1.agent_pb2_grpc"])
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_committed_stubs_are_what_the_generator_makes(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(["--check"]) == 0, capsys.readouterr().out
