"""What the scheduler of a Kubernetes version can do, by its default feature gates.

Explanations follow 1.36 and 1.37. An older scheduler leaves out devices and refuses requests that need what it lacks;
the table is small because only gates that the allocator asks for count. Gates that a cluster sets by hand cannot be
seen from outside, which is why a note says what was assumed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from scheduling.allocator.pools import Features

SINCE = {
    "admin_access": (34, "DRAAdminAccess"),
    "prioritized_list": (34, "DRAPrioritizedList"),
    "partitionable_devices": (36, "DRAPartitionableDevices"),
    "device_taints": (36, "DRADeviceTaints"),
    "binding_conditions": (36, "DRADeviceBindingConditions"),
    "consumable_capacity": (36, "DRAConsumableCapacity"),
    "fractional_capacity_range": (37, "DRAFractionalCapacityRange"),
}
"""Field of ``Features`` -> the minor version of Kubernetes 1 since which the gate is on by default, and its name."""

FOLLOWED = (36, 37)
"""The minor versions whose rules are followed; where the two differ, the later."""

_VERSION = re.compile(r"v?1\.(\d+)")


def minor_of(version: str) -> int | None:
    """The minor version in ``v1.36.0+k3s1``, None where there is none."""
    found = _VERSION.match(version)
    return int(found.group(1)) if found else None


def features_of(version: str) -> Features:
    """The features of a server's version; without one those of the latest version that is followed."""
    minor = minor_of(version)
    if minor is None:
        return Features()
    # A gate of an unknown future is on there as it is today.
    off = {name: False for name, (since, _) in SINCE.items() if minor < since}
    return replace(Features(), **off)


def note_of(version: str) -> str:
    """One line about what a version other than those that are followed means for the answer, else empty."""
    minor = minor_of(version)
    if minor is None or FOLLOWED[0] <= minor <= FOLLOWED[-1]:
        return ""
    if minor > FOLLOWED[-1]:
        return f"the cluster is {version}; the answer follows the scheduler of Kubernetes 1.{FOLLOWED[-1]}"
    off = [gate for since, gate in SINCE.values() if minor < since <= FOLLOWED[0]]
    followed = f"the answer follows the rules of 1.{FOLLOWED[-1]}, with these gates off as they are by default there"
    return f"the cluster is {version}; {followed}: {', '.join(off)}"
