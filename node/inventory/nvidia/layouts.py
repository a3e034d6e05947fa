"""What MIG can make of a GPU: the shapes of partitions.

Pure. Loaded only on nodes whose MIG profiles are read.
"""

from __future__ import annotations

from functools import lru_cache

from node.inventory.facts import MigProfile
from node.inventory.model import PartitionShape, sorted_capacity
from node.inventory.nvidia.attributes import MIB, nominal_gigabytes

_ATTRIBUTES = {
    **dict.fromkeys((7, 8), "+me"),
    **dict.fromkeys((10, 11, 12, 17), "+gfx"),
    **dict.fromkeys((13, 14), "-me"),
    **dict.fromkeys((15, 16), "+me.all"),
}
"""What a profile's name says beside slices and memory, by NVML's constant."""


# The tables of a node are few and never change, and every scan asks for them: equal ones shall be one object.
@lru_cache(maxsize=16)
def shapes_of(profiles: tuple[MigProfile, ...], gpu_memory: int | None) -> tuple[PartitionShape, ...]:
    """Every profile at each of its placements, sorted by profile id and start; ``gpu_memory`` in bytes."""
    shapes = []
    for profile in profiles:
        name = profile_name(profile, gpu_memory)
        capacity = sorted_capacity(
            [
                ("memory", profile.memory_mib * MIB),
                ("multiprocessors", profile.multiprocessors),
                ("copyEngines", profile.copy_engines),
                ("decoders", profile.decoders),
                ("encoders", profile.encoders),
                ("jpegEngines", profile.jpeg_engines),
                ("ofaEngines", profile.ofa_engines),
            ]
        )
        shapes += [PartitionShape(name, profile.profile_id, start, profile.size, capacity) for start in profile.starts]
    return tuple(sorted(shapes, key=lambda shape: (shape.profile_id, shape.start, shape.size)))


def profile_name(profile: MigProfile, gpu_memory: int | None) -> str:
    """``1g.5gb+me``: as the driver tells it, else from slices, memory and NVML's constant."""
    if profile.name:
        return profile.name.removeprefix("MIG").strip()
    memory = profile.memory_mib * MIB
    # The names' gigabytes are eighths of the GPU; where its size is unknown, the profile's own memory is near enough.
    nominal = nominal_gigabytes(memory, gpu_memory) if gpu_memory else -(-memory // (1 << 30))
    return f"{profile.slices}g.{nominal}gb{_ATTRIBUTES.get(profile.index, '')}"
