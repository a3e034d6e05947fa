"""The guard of a claim: a file on the node that exists only while all interfaces of the claim are in the pod.

The claim's CDI file mounts it into every container that gets a part of the claim. A container runtime cannot create a
container whose mount has no source, so no container of the claim starts without its interfaces, even if the runtime has
dropped our NRI plugin. The kubelet tries again, and succeeds as soon as the interfaces have arrived.

The file has the interfaces for programs in the pod. It is written whole: a container never sees half of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from driver.interfaces.journal import make_folder, remove_file
from node.edits.model import MountEdit
from node.files import WriteFailed, write_whole
from node.interfaces.model import AttachedInterface

IN_CONTAINER = "/var/run/ostler/interfaces"
"""Where containers find the files, named after the claim."""
_OPTIONS = ("ro", "nosuid", "nodev", "noexec", "bind")
_MODE = 0o644
"""Programs in containers run as any user; the file says what every program of the pod can see."""


def guard_mounts(folder: Path, uid: str, name: str) -> tuple[MountEdit, ...]:
    """The mounts of the claim's guard; ``folder``: of the guards. ``name``: the pod's own name for the claim.

    The second path has the claim's UID. Two claims of a container can have one name, since one has it from the pod and
    the other is so called; then the container would lose the guard of one of them.
    """
    source = str(folder / f"{uid}.json")
    paths = (f"{IN_CONTAINER}/{name}.json", f"{IN_CONTAINER}/by-uid/{uid}.json")
    return tuple(MountEdit(source, path, _OPTIONS) for path in paths)


class Guards:
    """The guards in ``folder``. Blocking; one call per claim at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, uid: str) -> Path:
        """The path of the claim's guard."""
        return self.folder / f"{uid}.json"

    def write(self, uid: str, interfaces: Iterable[AttachedInterface]) -> None:
        """Let the claim's containers start; raises WriteFailed."""
        data = json.dumps({"interfaces": [_shown(each) for each in interfaces]}, indent=2).encode() + b"\n"
        path = self.path(uid)
        try:
            write_whole(path, data, _MODE, durable=False, sweep=False)
        except WriteFailed as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            make_folder(self.folder)
            write_whole(path, data, _MODE, durable=False, sweep=False)

    def remove(self, uid: str) -> None:
        """Keep the claim's containers from starting; raises WriteFailed."""
        remove_file(self.path(uid))

    def uids(self) -> frozenset[str]:
        """Claims that have a guard."""
        return frozenset(path.name.removesuffix(".json") for path in self.folder.glob("*.json"))


def _shown(interface: AttachedInterface) -> dict[str, object]:
    return {
        "device": interface.device,
        "name": interface.name,
        "hardwareAddress": interface.hardware_address,
        "addresses": list(interface.addresses),
        "mtu": interface.mtu,
        **({"rdmaDevice": interface.rdma_device} if interface.rdma_device else {}),
    }
