"""GPUs in parts: NVIDIA's MIG profiles as the manual lists them, and a maker of partitions that keeps its own books."""

from __future__ import annotations

from node.inventory.model import (
    Attribute,
    AttributeValue,
    Capacity,
    Device,
    DeviceKind,
    NodeRole,
    PartitionShape,
    sorted_attributes,
)
from node.rules import Doors, Rule, Selector
from node.values import replace
from tests.making.devices import SHARED, gpu, node

MIB = 1 << 20
RULE = Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.GPU,)), Doors.DRA, partitions=True)
_DIMENSIONS = ("multiprocessors", "copyEngines", "decoders", "jpegEngines", "ofaEngines")


def shapes(
    profile: str, number: int, size: int, starts: tuple[int, ...], memory: int, *amounts: int
) -> tuple[PartitionShape, ...]:
    """The shapes of one profile; ``memory`` in MiB, ``amounts`` in the order of ``_DIMENSIONS``."""
    capacity = [("memory", memory * MIB), *zip(_DIMENSIONS, amounts, strict=False)]
    found = tuple(Capacity(name, amount) for name, amount in sorted(capacity))
    return tuple(PartitionShape(profile, number, start, size, found) for start in starts)


H100 = (
    *shapes("1g.10gb", 19, 1, (0, 1, 2, 3, 4, 5, 6), 9984, 16, 1, 1, 1, 0),
    *shapes("1g.10gb+me", 20, 1, (0, 1, 2, 3, 4, 5, 6), 9984, 16, 1, 1, 1, 1),
    *shapes("1g.20gb", 15, 2, (0, 2, 4, 6), 20096, 26, 1, 1, 1, 0),
    *shapes("2g.20gb", 14, 2, (0, 2, 4), 20096, 32, 2, 2, 2, 0),
    *shapes("3g.40gb", 9, 4, (0, 4), 40448, 60, 3, 3, 3, 0),
    *shapes("4g.40gb", 5, 4, (0,), 40448, 64, 4, 4, 4, 0),
    *shapes("7g.80gb", 0, 8, (0,), 81153, 132, 8, 7, 7, 1),
)
A30 = (
    *shapes("1g.6gb", 14, 1, (0, 1, 2, 3), 5836, 14, 1, 0, 0, 0),
    *shapes("1g.6gb+me", 21, 1, (0, 1, 2, 3), 5836, 14, 1, 1, 1, 1),
    *shapes("2g.12gb", 5, 2, (0, 2), 11672, 28, 2, 2, 0, 0),
    *shapes("4g.24gb", 0, 4, (0,), 23344, 56, 4, 4, 1, 1),
)


def parted(
    number: int, made_of: tuple[PartitionShape, ...] = H100, *, mig: bool = False, arch: str = "Hopper"
) -> Device:
    """GPU number ``number``, of which these partitions can be made; ``mig``: its MIG mode is on."""
    attributes: list[tuple[str, AttributeValue]] = [
        ("architecture", arch),
        ("driverVersion", "575.57.8"),
        ("migCapable", True),
        ("migEnabled", mig),
        ("productName", "NVIDIA H100 80GB HBM3"),
        ("resource.kubernetes.io/pciBusID", f"0000:{number}b:00.0"),
        ("type", "gpu"),
        ("uuid", f"GPU-{number}"),
    ]
    return gpu(
        number,
        partitions=made_of,
        attributes=sorted_attributes(attributes),
        capacity=(Capacity("memory", 81559 * MIB),),
    )


def instance(whole: Device, shape: PartitionShape, uuid: str = "") -> Device:
    """The MIG device of this shape, as the inventory names it once it exists."""
    place = f"{whole.name.removeprefix('gpu-')}-{shape.start}-{shape.size}"
    uuid = uuid or f"MIG-{place}-{shape.profile_id}"
    number = shape.start * 8 + shape.profile_id % 8
    facts = [(each.name, each.value) for each in whole.attributes if each.name not in ("type", "uuid", "migEnabled")]
    return Device(
        name=f"mig-{place}",
        kind=DeviceKind.MIG,
        vendor="nvidia",
        uuid=uuid,
        index=f"{whole.index}:{shape.start}",
        pci_address=whole.pci_address,
        parent=whole.name,
        attributes=sorted_attributes(
            [
                *facts,
                ("type", "mig"),
                ("uuid", uuid),
                ("parentUUID", whole.uuid),
                ("profile", shape.profile),
                ("gpuInstanceProfileID", shape.profile_id),
                ("placementStart", shape.start),
                ("placementSize", shape.size),
            ]
        ),
        capacity=shape.capacity,
        nodes=(
            *whole.nodes_of(NodeRole.DEVICE),
            node(f"/dev/nvidia-caps/nvidia-cap{number}1", NodeRole.CAPABILITY),
            node(f"/dev/nvidia-caps/nvidia-cap{number}2", NodeRole.CAPABILITY),
            *SHARED,
        ),
    )


def in_mode(whole: Device, *, mig: bool) -> Device:
    """The GPU with its MIG mode on or off."""
    others = [each for each in whole.attributes if each.name != "migEnabled"]
    attributes = tuple(sorted([*others, Attribute("migEnabled", mig)], key=lambda each: each.name))
    return replace(whole, attributes=attributes)
