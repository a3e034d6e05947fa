"""Raw facts about AMD GPUs, as the amdgpu driver shows them in sysfs.

Like all raw facts they are the content of a recorded node's file, without conclusions.
"""

from __future__ import annotations

from node.values import Value, value


@value
class AmdGpu(Value):
    """An AMD GPU by its PCI address: files of its sysfs folder as they are written.

    ``compute_partition`` and ``memory_partition``: ``SPX``, ``CPX``, ``NPS1``, ``NPS4``.
    """

    address: str
    product_name: str | None = None
    unique_id: str | None = None
    serial: str | None = None
    vram_bytes: int | None = None
    vbios_version: str | None = None
    compute_partition: str | None = None
    memory_partition: str | None = None


@value
class AmdPartition(Value):
    """A further partition of an AMD GPU: platform device ``amdgpu_xcp_1`` and its graphics nodes (``renderD129``)."""

    name: str
    drm: tuple[str, ...] = ()


@value
class KfdLink(Value):
    """A link between nodes of KFD's topology: ``type`` is 2 for PCIe and 11 for XGMI."""

    to: int
    type: int
    weight: int | None = None


@value
class KfdNode(Value):
    """A node of /sys/class/kfd/kfd/topology/nodes that is a GPU or one of its partitions; numbers as KFD has them.

    ``location_id`` holds bus, device and function (bus in bits 8-15), ``render_minor`` is the N of renderDN.
    """

    node: int
    gpu_id: int
    domain: int
    location_id: int
    render_minor: int
    gfx_target_version: int | None = None
    unique_id: int | None = None
    simd_count: int | None = None
    xcc_count: int | None = None
    links: tuple[KfdLink, ...] = ()
