"""The versions of Kubernetes that ostler is built against and tested with: the one file that names them.

A new version is a change here, its ``kubernetes/vVERSION.mod`` and ``.sum``, and a row of docs/compatibility.md;
``tests/rig/test_versions.py`` names what does not agree. Minor releases (1.36, or 1.36.0 where it takes three numbers)
may stand anywhere: since when Kubernetes behaves in some way is a fact, not a choice of ours.
"""

from __future__ import annotations

from typing import Final

CLUSTERS: Final = ("1.34.4", "1.35.4", "1.36.3", "1.37.2")
"""Versions of which a cluster can be brought up, oldest first; the last is the default."""
JUDGE: Final = "1.37.2"
"""Version whose allocator and CEL environment ours are compared with: ``tests/judge/go.mod``."""
RECORDED: Final = "1.36.3"
"""Version that answered most of ``tests/vectors``, and whose ResourceSlice controller ours is compared with."""
DRA_GATES_ON: Final = "1.36"
"""First minor release with these on by default: taints of devices, extended resources of classes, devices' health."""


EVICTS_BY_NAME: Final = "1.37"
"""First minor release in which a taint of a device evicts pods that ask by a resource's name (kubernetes#141290)."""


class UnknownVersion(Exception):
    """A version of Kubernetes that is not pinned."""


def newest() -> str:
    """The version of a cluster when none is named."""
    return CLUSTERS[-1]


def minor_release(version: str) -> str:
    """``1.36`` of ``1.36.3``."""
    return version.rpartition(".")[0]


def pinned(wanted: str) -> str:
    """The version that ``wanted`` names: one of ``CLUSTERS``, or its minor release; empty for the newest."""
    found = next((each for each in CLUSTERS if wanted in (each, minor_release(each))), None)
    if wanted and found is None:
        raise UnknownVersion(
            f"K8S={wanted!r} is not one of {', '.join(CLUSTERS)}; see tests/cluster/components/versions.py"
        )
    return found or newest()


def has_dra_gates(version: str) -> bool:
    """Whether the gates of ``DRA_GATES_ON`` are on by default in that version.

    The table of docs/dra.md says the same.
    """
    return has_reached(version, DRA_GATES_ON)


def evicts_by_name(version: str) -> bool:
    """Whether that version is ``EVICTS_BY_NAME`` or later."""
    return has_reached(version, EVICTS_BY_NAME)


def has_reached(version: str, minor: str) -> bool:
    """Whether the version is of this minor release or a later one."""
    return _numbers(version) >= _numbers(minor)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
