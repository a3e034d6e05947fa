from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime

from hypothesis import given, settings

from node.inventory.amd.facts import KfdNode
from node.inventory.devices import devices_of
from node.inventory.facts import (
    CallError,
    CdiFacts,
    Fabric,
    GpuFacts,
    MigFacts,
    NodeFacts,
    NvmlFacts,
)
from node.inventory.identity import Identities
from node.inventory.net_facts import HostAddress
from node.inventory.recordings.source import anonymize, dump, read
from sandbox import nodes
from tests.node.recorded.strategies import facts, identified_nodes

UUID = "7c5ab686-eaea-c026-68c0-85164c5ea72b"
MIG = "9dfbe979-06a1-5cab-9421-4d953ccc212b"
NODE = NodeFacts(
    nvml=NvmlFacts(
        gpus=(
            GpuFacts(
                index=0,
                uuid=f"GPU-{UUID}",
                name="NVIDIA A100-SXM4-40GB",
                serial="1323121035405",
                board_part_number="692-2G506-0200-002",
                fabric=Fabric("c1d3b8a4-1111-2222-3333-444455556666", 3, 3, 0),
                mig_devices=(MigFacts(0, uuid=f"MIG-{MIG}"), MigFacts(1, uuid=f"MIG-GPU-{UUID}/7/0")),
                errors=(CallError("nvmlDeviceGetSerial", "board 1323121035405 is odd"),),
            ),
        )
    ),
    cdi=CdiFacts((f"nvidia.com/gpu=GPU-{UUID}", f"nvidia.com/gpu=MIG-{MIG}", "nvidia.com/gpu=all")),
)


def shape(value: object) -> object:
    """The value with every text replaced by its length, so that only structure is left.

    Addresses of the host may be shorter or longer, and a KFD node's unique id is a number.
    """
    if isinstance(value, HostAddress):
        return [HostAddress, len(value.interface)]
    if isinstance(value, KfdNode):
        value = replace(value, unique_id=None if value.unique_id is None else 1)
    if isinstance(value, str):
        return len(value)
    if isinstance(value, tuple):
        return [shape(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value), *(shape(getattr(value, field.name)) for field in fields(value))]
    return value


def text(node: NodeFacts) -> str:
    return dump(node, name="n", description="d", recorded_at=datetime(2026, 1, 31, tzinfo=UTC))


def test_identities_are_replaced_everywhere_and_alike() -> None:
    hidden = anonymize(NODE, "salt")

    assert hidden.nvml is not None
    assert hidden.cdi is not None
    gpu = hidden.nvml.gpus[0]
    assert gpu.uuid is not None
    assert gpu.serial is not None
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu.uuid)
    assert re.fullmatch(r"[0-9]{13}", gpu.serial)
    assert re.fullmatch(r"[0-9]{3}-[0-9][A-Z][0-9]{3}-[0-9]{4}-[0-9]{3}", gpu.board_part_number or "")
    assert gpu.mig_devices[1].uuid == f"MIG-{gpu.uuid}/7/0"
    assert gpu.errors[0].error == f"board {gpu.serial} is odd"
    assert hidden.cdi.devices == (
        f"nvidia.com/gpu={gpu.uuid}",
        f"nvidia.com/gpu={gpu.mig_devices[0].uuid}",
        "nvidia.com/gpu=all",
    )
    for original in (UUID, MIG, "1323121035405", "692-2G506-0200-002", "c1d3b8a4"):
        assert original not in text(hidden)


def test_what_identifies_nothing_stays() -> None:
    hidden = anonymize(NODE, "salt")

    assert hidden.nvml is not None
    assert hidden.nvml.gpus[0].name == "NVIDIA A100-SXM4-40GB"
    assert shape(hidden) == shape(NODE)


def test_one_salt_gives_one_result_and_another_salt_another() -> None:
    assert anonymize(NODE, "a") == anonymize(NODE, "a")
    assert anonymize(NODE, "a") != anonymize(NODE, "b")
    assert anonymize(NODE) != anonymize(NODE)


def test_a_cluster_of_zeros_is_none_and_stays() -> None:
    fabric = Fabric("00000000-0000-0000-0000-000000000000", 0, 3, 0)
    node = NodeFacts(nvml=NvmlFacts(gpus=(GpuFacts(0, fabric=fabric),)))

    assert anonymize(node, "salt") == node


def test_a_short_serial_changes_nothing_but_itself() -> None:
    node = NodeFacts(nvml=NvmlFacts(driver_version="550.0", gpus=(GpuFacts(0, serial="0", bus_id="00000000:01:00.0"),)))

    hidden = anonymize(node, "salt").nvml

    assert hidden is not None
    assert hidden.driver_version == "550.0"
    assert hidden.gpus[0].bus_id == "00000000:01:00.0"
    assert hidden.gpus[0].serial not in (None, "0")


def test_upper_and_lower_case_are_one_uuid() -> None:
    node = NodeFacts(cdi=CdiFacts((UUID, UUID.upper())))

    hidden = anonymize(node, "salt").cdi

    assert hidden is not None
    assert hidden.devices[0] == hidden.devices[1]


@given(identified_nodes)
def test_no_serial_uuid_or_part_number_is_left_in_the_text(node: NodeFacts) -> None:
    hidden = anonymize(node, "salt")

    assert node.nvml is not None
    assert shape(hidden) == shape(node)
    written = text(hidden)
    for gpu in node.nvml.gpus:
        for secret in (gpu.uuid, gpu.serial, gpu.board_part_number, *(mig.uuid for mig in gpu.mig_devices)):
            assert secret is not None
            assert secret not in written


@settings(deadline=None)
@given(facts)
def test_any_facts_keep_their_structure(node: NodeFacts) -> None:
    assert shape(anonymize(node, "salt")) == shape(node)


def test_shipped_nodes_have_the_same_devices_afterwards() -> None:
    for name in nodes.names():
        node = read(nodes.path(name)).facts
        before = devices_of(node, Identities())
        after = devices_of(anonymize(node, "salt"), Identities())
        assert [(device.name, device.health, device.nodes) for device in after] == [
            (device.name, device.health, device.nodes) for device in before
        ]
        uuids = [{device.uuid for device in devices} - {None} for devices in (before, after)]
        assert not uuids[0] & uuids[1]
