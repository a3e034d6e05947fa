"""What a container with a share under MPS gets besides its device: where the control daemon listens.

The shapes are those of NVIDIA's device plugin. Folders on the host are ``<root>/<resource>/pipe`` and ``<root>/shm``.
"""

from __future__ import annotations

from node.edits.model import ContainerEdits, MountEdit
from node.values import replace

PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
_IN_CONTAINER = "/mps"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - CUDA looks for the server's memory there and nowhere else


def pipe_folder(root: str, name: str) -> str:
    """The folder of the daemon's pipes; ``name``: the resource, or what else the daemon is for."""
    return f"{root.rstrip('/')}/{name}/pipe"


def log_folder(root: str, name: str) -> str:
    """The folder of the daemon's logs."""
    return f"{root.rstrip('/')}/{name}/log"


def shm_folder(root: str) -> str:
    """The folder that daemons and clients share as /dev/shm."""
    return f"{root.rstrip('/')}/shm"


def with_mps(edits: ContainerEdits, mps: tuple[str, str] | None) -> ContainerEdits:
    """The edits of a container with a share; ``mps`` as in ``EditOptions``."""
    if mps is None:
        return edits
    more = mps_edits(*mps)
    return replace(edits, env=(*edits.env, *more.env), mounts=(*edits.mounts, *more.mounts))


def mps_edits(root: str, name: str) -> ContainerEdits:
    """The edits of a container that is a client of the daemon ``name``."""
    pipe = pipe_folder(_IN_CONTAINER, name)
    return ContainerEdits(
        env=((PIPE_VARIABLE, pipe),),
        mounts=(MountEdit(pipe_folder(root, name), pipe), MountEdit(shm_folder(root), SHARED_MEMORY)),
    )
