"""The partitions that MIG can make of a GPU, and where those of a layout go.

Pure. Loaded only on nodes whose MIG profiles are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from operator import attrgetter

from node.inventory.facts import MigProfile
from node.inventory.model import Device, PartitionShape, sorted_capacity
from node.inventory.nvidia.attributes import MIB, nominal_gigabytes

_ATTRIBUTES = {
    **dict.fromkeys((7, 8), "+me"),
    **dict.fromkeys((10, 11, 12, 17), "+gfx"),
    **dict.fromkeys((13, 14), "-me"),
    **dict.fromkeys((15, 16), "+me.all"),
}
"""The suffix of a profile's name after slices and memory, by NVML's constant."""


# The tables of a node are few and never change, and every scan needs them: equal ones should be one object.
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
    return tuple(sorted(shapes, key=attrgetter("profile_id", "start", "size")))


def profile_name(profile: MigProfile, gpu_memory: int | None) -> str:
    """``1g.5gb+me``: as the driver names it, else from slices, memory and NVML's constant."""
    if profile.name:
        return profile.name.removeprefix("MIG").strip()
    memory = profile.memory_mib * MIB
    # The names' gigabytes are eighths of the GPU; if its size is unknown, the profile's own memory is close enough.
    nominal = nominal_gigabytes(memory, gpu_memory) if gpu_memory else -(-memory // (1 << 30))
    return f"{profile.slices}g.{nominal}gb{_ATTRIBUTES.get(profile.index, '')}"


class LayoutError(Exception):
    """A layout cannot be made of a GPU: the device's name, why, and what to write instead."""

    def __init__(self, gpu: str, problem: str, fix: str) -> None:
        super().__init__(f"{gpu}: {problem}; {fix}")
        self.problem = problem
        self.fix = fix


Place = tuple[int, int]
"""Profile id and start of a partition."""


def plan_layout(
    gpu: Device, profiles: Sequence[str], existing: Collection[Place] = (), fixed: Sequence[PartitionShape] = ()
) -> tuple[PartitionShape, ...]:
    """A place for an instance of each profile, the largest first, such that all of them fit; raises LayoutError.

    Among several places one is taken where such an instance exists, so that nothing is destroyed to be made again
    elsewhere; else the first one. ``fixed``: partitions that stay where they are.
    """
    by_profile: dict[str, list[PartitionShape]] = {}
    for shape in gpu.partitions:
        by_profile.setdefault(shape.profile, []).append(shape)
    for profile in profiles:
        if profile not in by_profile:
            known = ", ".join(sorted(by_profile)) or "none: its MIG profiles are not known"
            raise LayoutError(gpu.name, f"it has no MIG profile {profile}", f"choose from its profiles ({known})")
    # The largest have the fewest places, and leave the rest in one piece.
    wanted = sorted(profiles, key=lambda profile: (-_weight(by_profile[profile][0]), profile))
    choices = [
        sorted(by_profile[profile], key=lambda shape: (shape.place not in existing, shape.start)) for profile in wanted
    ]
    found = _fill(choices, list(fixed), _limits(gpu))
    if found is None:
        counted = ", ".join(f"{number} x {profile}" for profile, number in Counter(wanted).items())
        beside = f" beside {', '.join(shape.profile for shape in fixed)}" if fixed else ""
        raise LayoutError(
            gpu.name,
            f"{counted} do not fit on it together{beside}: their memory slices overlap, or its engines do not suffice",
            "take fewer or smaller instances",
        )
    return tuple(sorted(found, key=attrgetter("start", "profile_id")))


def _weight(shape: PartitionShape) -> int:
    """Memory slices before compute: 3g takes as many of the former as 4g, and has two places."""
    return shape.size * 1000 + next((each.value for each in shape.capacity if each.name == "multiprocessors"), 0)


def _limits(gpu: Device) -> dict[str, int]:
    """What the whole GPU has: the most of each kind that one instance can have."""
    limits: dict[str, int] = {}
    for shape in gpu.partitions:
        for each in shape.capacity:
            limits[each.name] = max(limits.get(each.name, 0), each.value)
    return limits


def _fill(
    choices: Sequence[Sequence[PartitionShape]], chosen: list[PartitionShape], limits: dict[str, int]
) -> list[PartitionShape] | None:
    """A choice of one shape from each list that fits those chosen before; None if there is none.

    Equal lists follow each other, and are chosen from in their order: exchanging two equal instances finds nothing new.
    """
    placed: list[PartitionShape] = []

    def fill(number: int, first: int) -> bool:
        if number == len(choices):
            return True
        is_repeated = choices[number : number + 1] == choices[number + 1 : number + 2]
        for index, shape in enumerate(choices[number][first:], first + 1):
            if _goes_with(shape, [*chosen, *placed], limits):
                placed.append(shape)
                if fill(number + 1, index if is_repeated else 0):
                    return True
                placed.pop()
        return False

    return placed if fill(0, 0) else None


def _goes_with(shape: PartitionShape, others: Sequence[PartitionShape], limits: dict[str, int]) -> bool:
    if any(shape.start < other.start + other.size and other.start < shape.start + shape.size for other in others):
        return False
    total = Counter({each.name: each.value for each in shape.capacity})
    for other in others:
        total.update({each.name: each.value for each in other.capacity})
    return all(amount <= limits.get(name, 0) for name, amount in total.items())
