"""The guard of a claim: two files on the node that exist only while all interfaces of the claim are in the pod.

The claim's CDI file gives both to every container that gets a part of the claim. A container runtime cannot create a
container whose files are missing, so no container of the claim starts without its interfaces, even if the runtime has
dropped our NRI plugin. The kubelet tries again, and succeeds as soon as the interfaces have arrived.

- The *gate* is a FIFO that the container gets as a device node. Runtimes look at device nodes when they create a
  container, and the kubelet repeats that for every pod. A FIFO is the one kind that needs no right to be made, and that
  no container can do anything with.
- The *notice* is mounted. Runtimes look at mounts only when they start a container, and a start that fails ends a pod
  with restartPolicy Never. So it is the second fence, for the moment in which the interfaces leave. It has them for
  programs in the pod, and is written whole: a container never sees half of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from driver.interfaces.journal import remove_file, write_below
from node.edits.model import MountEdit, NodeEdit
from node.files import write_whole
from node.interfaces.model import AttachedInterface

IN_CONTAINER = "/var/run/ostler/interfaces"
"""Where containers find the files, named after the claim."""
_OPTIONS = ("ro", "nosuid", "nodev", "noexec", "bind")
_GATE = ".gate"
_MODE = 0o644
"""Programs in containers run as any user; the file says what every program of the pod can see."""


def guard_mounts(folder: Path, uid: str, name: str) -> tuple[MountEdit, ...]:
    """The mounts of the claim's notice; ``folder``: of the guards. ``name``: the pod's own name for the claim.

    The second path has the claim's UID. Two claims of a container can have one name, since one has it from the pod and
    the other is so called; then the container would lose the guard of one of them.
    """
    source = str(folder / f"{uid}.json")
    paths = (f"{IN_CONTAINER}/{name}.json", f"{IN_CONTAINER}/by-uid/{uid}.json")
    return tuple(MountEdit(source, path, _OPTIONS) for path in paths)


def guard_nodes(folder: Path, uid: str) -> tuple[NodeEdit, ...]:
    """The gate of the claim as a device node; at the path of the node, which pods with user namespaces need."""
    path = str(folder / f"{uid}{_GATE}")
    return (NodeEdit(path, path, "r"),)


class Guards:
    """The guards in ``folder``. Blocking; one call per claim at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, uid: str) -> Path:
        """The path of the claim's notice."""
        return self.folder / f"{uid}.json"

    def gate(self, uid: str) -> Path:
        """The path of the claim's gate."""
        return self.folder / f"{uid}{_GATE}"

    def is_open(self, uid: str) -> bool:
        """Whether the claim's containers may start."""
        return self.path(uid).exists() and self.gate(uid).is_fifo()

    def write(self, uid: str, interfaces: Iterable[AttachedInterface]) -> None:
        """Let the claim's containers start; raises WriteFailed or OSError."""
        data = json.dumps({"interfaces": [_shown(each) for each in interfaces]}, indent=2).encode() + b"\n"
        path = self.path(uid)
        write_below(self.folder, lambda: write_whole(path, data, _MODE, durable=False, sweep=False))
        with suppress(FileExistsError):
            os.mkfifo(self.gate(uid), 0o600)

    def remove(self, uid: str) -> None:
        """Keep the claim's containers from starting; raises WriteFailed."""
        remove_file(self.gate(uid))
        remove_file(self.path(uid))

    def uids(self) -> frozenset[str]:
        """Claims that have a guard, or a part of one."""
        return frozenset(path.stem for path in self.folder.glob("*") if path.suffix in {".json", _GATE})


def _shown(interface: AttachedInterface) -> dict[str, object]:
    return {
        "device": interface.device,
        "name": interface.name,
        "hardwareAddress": interface.hardware_address,
        "addresses": list(interface.addresses),
        "mtu": interface.mtu,
        **({"rdmaDevice": interface.rdma_device} if interface.rdma_device else {}),
    }
