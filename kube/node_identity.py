"""Checks that the Node object with our name is this machine, before ostler writes anything about it.

A wrong node name (a copied file, a template without its field) would put this machine's events, and later its devices,
on another node. The kubelet publishes two ids of its machine, which ostler can read as well. An id that either side
lacks is not compared: a container without the host's /etc/machine-id still has the firmware's id.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kube.backoff import Backoff
from kube.bodies import JsonObject, object_at, one_line, path_of, text_at
from kube.errors import KubeError, NodeNotOurs, RequestError
from kube.files import read_small

if TYPE_CHECKING:
    from kube.discovery import ObjectGetter

_LONGEST = 128
"""Characters of an id that ostler compares and shows; real ids have 32 to 36."""


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine's ids, empty if unknown, and the files they come from."""

    machine_id: str = ""
    system_uuid: str = ""
    machine_id_file: Path = Path("/etc/machine-id")
    system_uuid_file: Path = Path("/sys/class/dmi/id/product_uuid")


def read_machine(etc: Path = Path("/etc"), sys: Path = Path("/sys")) -> Machine:
    """The ids as the kubelet reads them (cAdvisor: machine-id, and DMI's product_uuid, which only root may read)."""
    machine_id, system_uuid = etc / "machine-id", sys / "class/dmi/id/product_uuid"
    return Machine(_line(machine_id), _line(system_uuid), machine_id, system_uuid)


def _line(path: Path) -> str:
    try:
        text = read_small(path).decode("ascii").strip()
    except (OSError, ValueError):
        return ""
    # systemd writes this word until an image has its first boot.
    return "" if text == "uninitialized" else text


def check_node(node: JsonObject, name: str, machine: Machine) -> None:
    """Raise ``NodeNotOurs`` if the Node object is another machine's."""
    info = object_at(node, "status", "nodeInfo")
    machine_id, system_uuid = (one_line(text_at(info, key), _LONGEST) for key in ("machineID", "systemUUID"))
    if _differ(system_uuid, machine.system_uuid) and not _same(system_uuid, machine_id):
        # A kubelet that cannot read DMI publishes the machine id twice.
        raise NodeNotOurs(name, "systemUUID", system_uuid, machine.system_uuid, str(machine.system_uuid_file))
    if _differ(machine_id, machine.machine_id):
        raise NodeNotOurs(name, "machineID", machine_id, machine.machine_id, str(machine.machine_id_file))


def _differ(one: str, other: str) -> bool:
    return bool(one and other) and not _same(one, other)


def _same(one: str, other: str) -> bool:
    return one.strip().lower() == other.strip().lower()


def await_node(
    client: ObjectGetter,
    name: str,
    machine: Callable[[], Machine],
    *,
    backoff: Backoff,
    closed: threading.Event,
    on_failure: Callable[[KubeError], None],
) -> JsonObject | None:
    """Ask until the Node exists and is this machine, and return it; None if ``closed`` is set first.

    A Node of another machine is asked for again like a missing one: after a machine was installed again, its kubelet
    corrects the old object a moment later. ``on_failure`` is called after every failed attempt.
    """
    while not closed.is_set():
        try:
            node = client.get(path_of("api", "v1", "nodes", name))
            check_node(node, name, machine())
        except KubeError as error:
            on_failure(error)
            closed.wait(backoff.delay(error.retry_after if isinstance(error, RequestError) else None))
        else:
            return node
    return None
