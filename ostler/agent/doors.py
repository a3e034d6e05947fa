"""Says by the settings and the state folder what each door needs, and makes the ledger of both."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from node.opening import KUBELET_STATE, read_regular
from node.rules import Door
from node.sharing import SharingStrategy
from ostler.config.settings import RegistrationChoice, Settings
from plugin.kubelet import KubeletFolders, RegistrationPath

if TYPE_CHECKING:
    from node.events import EventRecorder
    from node.ledger.bookkeeping import Bookkeeping
    from node.ledger.containers import PodContainers
    from node.ledger.processes import ComputeProcesses
    from node.ledger.reader import KubeletSource
    from ostler.agent.edges import Edges
    from ostler.metrics.counters import HoldsMetrics

_LEFT = ("dra-door.json", "claim-sharing.json", "mps-claims.json")
"""File names of driver.publishing.shown and driver.claims.sharing; not imported, because most nodes have no DRA door.
"""

_MPS_LEFT = "mps.json"
"""The file name of node.mps.modes; not imported, because most nodes have no MPS."""


def claims_to_serve(settings: Settings) -> bool:
    """Whether the DRA door has anything to serve: devices by rule, or what an earlier process has left.

    That is: claims that have devices, devices whose withdrawal from claims was not confirmed, and time slices and MPS
    control daemons made for claims.
    """
    if settings.kubernetes.door_by_node or any(rule.door.has(Door.DRA) for rule in settings.rules):
        return True
    return any(os.path.lexists(settings.state_dir / name) for name in _LEFT) or claims_left(settings)


def needs_mps(settings: Settings) -> bool:
    """Whether MPS has anything to do: a rule shares devices by it, or an earlier process left something of it.

    That is: control daemons of resources, or compute modes that must be reset.
    """
    shares = (rule.sharing for rule in settings.rules if rule.sharing is not None)
    return any(each.strategy is SharingStrategy.MPS for each in shares) or os.path.lexists(
        settings.state_dir / _MPS_LEFT
    )


def claims_left(settings: Settings) -> bool:
    """Whether an earlier process may have prepared claims that have devices, by its records or the kubelet's own.

    A record that cannot be read may name some.
    """
    # The name of node.kubelet.dra_state.FILE_NAME; not imported for the same reason.
    kubelets_own = settings.kubelet.registry_dir.parent / "dra_manager_state"
    try:
        if any(settings.state_dir.joinpath("claims").glob("*.json")):
            return True
        return settings.dra.driver_name.encode() in read_regular(kubelets_own, KUBELET_STATE, links=True)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def remove_dead_driver_sockets(settings: Settings) -> list[Path]:
    """Remove the sockets of a killed DRA door, even if no other follows; only for the holder of the instance lock.

    A kubelet keeps dialling such sockets, even after a reboot.
    """
    registry, folder = settings.kubelet.registry_dir, settings.dra.plugins_dir / settings.dra.driver_name
    try:
        left = any(registry.glob("*-reg.sock")) or any(folder.iterdir())
    except OSError:
        return []
    if not left:
        return []
    # Imported here: most nodes have none.
    from driver.door.registration import DoorOptions, sweep

    return sweep(DoorOptions(settings.dra.driver_name, "", settings.dra.plugins_dir, registry))


def kubelet_folders(settings: Settings) -> KubeletFolders:
    """The kubelet's folders for the plugin door, with the ways to register in the order in which they are tried."""
    paths = {
        RegistrationChoice.AUTO: (RegistrationPath.REGISTRY, RegistrationPath.REGISTER),
        RegistrationChoice.REGISTRY: (RegistrationPath.REGISTRY,),
        RegistrationChoice.REGISTER: (RegistrationPath.REGISTER,),
    }[settings.kubelet.registration]
    return KubeletFolders(settings.kubelet.device_plugin_dir, settings.kubelet.registry_dir, paths)


def open_books(
    settings: Settings,
    edges: Edges,
    processes: ComputeProcesses,
    events: EventRecorder,
    metrics: HoldsMetrics,
    *,
    reader: KubeletSource | None = None,
    containers: PodContainers | None = None,
) -> Bookkeeping:
    """The node's ledger by these settings; ``reader`` and ``containers`` as for ``Bookkeeping``."""
    from node.ledger.bookkeeping import Bookkeeping, BookkeepingOptions
    from ostler.agent.handover import LINGER

    options = BookkeepingOptions(
        settings.kubelet.registry_dir.parent,
        settings.kubelet.device_plugin_dir,
        settings.state_dir,
        settings.roots.proc,
        settings.roots.sys / "fs/cgroup",
        settings.holds.ignore_processes,
        LINGER,
    )
    return Bookkeeping(options, edges, processes, events=events, observer=metrics, reader=reader, containers=containers)
