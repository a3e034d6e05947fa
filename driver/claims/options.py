"""Where claims are kept and how long things wait, as one value."""

from __future__ import annotations

from pathlib import Path

from driver.devices.peer import Peer
from node.values import Value, value


@value
class ClaimOptions(Value):
    """``state_dir``: ours; records are in its folder ``claims``. ``kubelet_root``: holds ``dra_manager_state``.

    ``pool``: name of this node's pool. ``peers``: drivers whose claims run on ours; parameters for them are looked at,
    and those for any other driver are not.

    Times are seconds: ``device_wait`` for a device that another claim still holds (the kubelet asks again only after a
    minute or more, and gives a call 45 s), ``collect_every`` between two looks for claims that nobody has any more,
    ``collect_first`` within which the first one is (the nodes of a rollout start together), ``collect_spacing`` between
    two at least, however often one is asked for, ``rebuild_after`` until a claim without a usable record is tried again
    (doubled each time), ``tombstone_age`` for which a released claim is remembered, ``kubelet_release`` after which
    people are told of a claim that the API server does not have, that another one waits for, and of which only the
    kubelet could say whether it is used (it looks once a minute). ``threads``: that wait for the disk at once; disks
    make what comes together durable together.
    """

    driver_name: str
    pool: str
    state_dir: Path
    cdi_dir: Path
    kubelet_root: Path
    peers: tuple[Peer, ...] = ()
    device_wait: float = 10.0
    ready_wait: float = 10.0
    collect_every: float = 300.0
    collect_first: float = 5.0
    collect_spacing: float = 1.0
    rebuild_after: float = 2.0
    tombstone_age: float = 600.0
    kubelet_release: float = 120.0
    threads: int = 16
