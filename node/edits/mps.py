"""What a container with a share under MPS gets besides its device: where the control daemon listens.

Variables and paths in the container are those of NVIDIA's device plugin. On the host a daemon's folders are below
``<root>/<name>``: ``pipe``, ``shm`` (there it is one for all daemons) and ``log``, which no container gets.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.edits.model import ContainerEdits, MountEdit
from node.sharing import COMPUTE, MEMORY, MILLION, Amounts, total
from node.values import replace

MEMORY_VARIABLE = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
THREADS_VARIABLE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
_IN_CONTAINER = "/mps"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - CUDA looks for the server's memory there and nowhere else


_MIB = 1 << 20


def pipe_folder(root: str, name: str) -> str:
    """The folder of the daemon's pipes; ``name``: the resource, or what else the daemon is for."""
    return f"{root.rstrip('/')}/{name}/pipe"


def log_folder(root: str, name: str) -> str:
    """The folder of the daemon's logs."""
    return f"{root.rstrip('/')}/{name}/log"


def shm_folder(root: str, name: str) -> str:
    """The folder that the daemon and its clients share as /dev/shm."""
    return f"{root.rstrip('/')}/{name}/shm"


def with_mps(
    edits: ContainerEdits, mps: tuple[str, str] | None, limits: tuple[tuple[str, str], ...] = ()
) -> ContainerEdits:
    """The edits of a container with a share; ``mps`` as in ``EditOptions``, ``limits``: variables that limit it."""
    if mps is None:
        return edits
    more = mps_edits(*mps)
    return replace(edits, env=(*edits.env, *more.env, *limits), mounts=(*edits.mounts, *more.mounts))


def client_limits(shares: Iterable[tuple[str, Amounts]]) -> tuple[tuple[str, str], ...]:
    """The variables that limit a client of MPS to its shares; ``shares``: pairs of a device and what one takes of it.

    A client numbers its devices itself, so all of them get the limit of the one of which it has the least. An amount
    that is not known is not limited.
    """
    taken: dict[str, list[Amounts]] = {}
    for device, amounts in shares:
        taken.setdefault(device, []).append(amounts)
    sums = [total(each) for each in taken.values()]
    least = {
        name: min(each[name] for each in sums) for name in (MEMORY, COMPUTE) if sums and all(name in s for s in sums)
    }
    found = []
    if MEMORY in least:
        memory = max(1, least[MEMORY] // _MIB)
        found.append((MEMORY_VARIABLE, ",".join(f"{number}={memory}M" for number in range(len(taken)))))
    if COMPUTE in least:
        percentage = min(100, max(1, least[COMPUTE] * 100 // MILLION))
        found.append((THREADS_VARIABLE, str(percentage)))
    return tuple(found)


def mps_edits(root: str, name: str) -> ContainerEdits:
    """The edits of a container that is a client of the daemon ``name``."""
    pipe = pipe_folder(_IN_CONTAINER, name)
    return ContainerEdits(
        env=((PIPE_VARIABLE, pipe),),
        mounts=(MountEdit(pipe_folder(root, name), pipe), MountEdit(shm_folder(root, name), SHARED_MEMORY)),
    )
