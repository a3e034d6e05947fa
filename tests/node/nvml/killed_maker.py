"""Runs a scenario of the partition maker in a process that dies at a chosen point; see ``test_partition_kills``.

The process is one of ``tests.making.dying``. The NVML library counts points and kills at one of them; a file operation
of the journal is one more, seen by an audit hook.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pynvml

from node.inventory.nvidia import nvml_profiles
from node.inventory.nvidia.nvml_mig import MigCalls
from node.partitions import MigLayout
from tests.making.mig_nodes import PartitionedNode, shape_of

LAYOUT = MigLayout(("3g.40gb", "1g.10gb"))
PRELOADED = (nvml_profiles, pynvml)
"""What the agent imports late: here once, and not in every child."""
FILE_OPERATIONS = ("os.rename", "os.remove")
POINT, OPERATION = "KILL_POINT", "KILL_OPERATION"
"""Environment variables: the number of the point or the file operation at which the process dies."""
MOMENTS = "moments"
"""The file in which a process that was not killed says what its folder held at each of them."""
_RANDOM = re.compile(r"\.[0-9a-f]{12}(?=\.tmp$)")


def foreign(made: PartitionedNode, profile: str, at: int, *, compute: bool = True) -> None:
    """Somebody else makes an instance of the first GPU."""
    binding = made.source.sessions.current
    assert binding is not None
    calls, gpu, shape = MigCalls(binding), made.gpu(), made.shape(profile, at)
    handle = calls.gpu(gpu.uuid or "", gpu.index)
    calls.set_mode(handle, on=True)
    instance = calls.create_instance(handle, shape.profile_id, shape.start, shape.size)
    if compute:
        calls.create_compute_instance(instance, calls.full_profile(instance)[0])


def make(made: PartitionedNode, owner: str, profile: str, at: int) -> None:
    """The maker makes a partition of the first GPU."""
    made.maker.make(made.gpu(), made.shape(profile, at), owner)


def nothing(made: PartitionedNode) -> None:
    """A GPU as it comes."""


def beside(made: PartitionedNode) -> None:
    """A partition of another claim, and one of somebody else."""
    make(made, "other", "1g.10gb", 0)
    foreign(made, "1g.10gb", 1)


def made_beside(made: PartitionedNode) -> None:
    """The claim's partition beside them."""
    beside(made)
    make(made, "claim", "3g.40gb", 4)


def existing(made: PartitionedNode) -> None:
    """Somebody else's instance where the claim's partition shall be."""
    beside(made)
    foreign(made, "3g.40gb", 4)


def empty(made: PartitionedNode) -> None:
    """Somebody else's GPU instance, without a compute instance, where the claim's partition shall be."""
    beside(made)
    foreign(made, "3g.40gb", 4, compute=False)


def several(made: PartitionedNode) -> None:
    """Two partitions of the claim."""
    made_beside(made)
    make(made, "claim", "1g.10gb", 2)


def unused(made: PartitionedNode) -> None:
    """MIG mode on and nothing in it."""
    make(made, "claim", "1g.10gb", 2)
    made.maker.remove("claim")


def divided(made: PartitionedNode) -> None:
    """A former layout beside an instance of somebody else."""
    foreign(made, "1g.10gb", 1)
    made.maker.apply_layout(made.gpu(), MigLayout(("2g.20gb", "1g.10gb", "1g.10gb")))


PREPARATIONS: dict[str, Callable[[PartitionedNode], None]] = {
    each.__name__: each for each in (nothing, beside, made_beside, existing, empty, several, unused, divided)
}


def act(made: PartitionedNode, action: str, moments: Moments) -> None:
    """What is to be killed; everything that is looked up for it is looked up before."""
    gpu = made.gpu()
    shape = shape_of(gpu, "3g.40gb", 4)
    actions: dict[str, Callable[[], object]] = {
        "make": lambda: made.maker.make(gpu, shape, "claim"),
        "remove": lambda: made.maker.remove("claim"),
        "sweep": lambda: made.maker.sweep(frozenset({"other"})),
        "leave": lambda: made.maker.leave_partitioning(gpu),
        "layout": lambda: made.maker.apply_layout(gpu, LAYOUT),
    }
    chosen = actions[action]
    moments.arm()
    chosen()


class Moments:
    """The moments at which a kill is tried: the library's points and the journal's file operations.

    For each, in its order, it notes what the folder holds: that is all that a process which is killed there leaves.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._killed_at = 0
        self._is_armed = False
        self.states: dict[str, list[str]] = {POINT: [], OPERATION: []}

    def arm(self) -> None:
        """Count from here, and die where the environment says."""
        os.environ["NVML_STUB_KILL"] = os.environ.pop(POINT, "0")
        self._killed_at = int(os.environ.pop(OPERATION, "0"))
        self._is_armed = True

    def on_point(self) -> None:
        """Called by the library, which kills by itself."""
        self.states[POINT].append(state_of(self._folder))

    def on_audit(self, event: str, _: object) -> None:
        """Called by the interpreter."""
        if self._is_armed and event in FILE_OPERATIONS:
            self.states[OPERATION].append(state_of(self._folder))
            if len(self.states[OPERATION]) == self._killed_at:
                os.kill(os.getpid(), signal.SIGKILL)


def state_of(folder: Path) -> str:
    """What the files of a scenario hold, as a checksum; a temporary file's own name says nothing."""
    files = {_RANDOM.sub("", file.name): file.read_bytes() for file in folder.iterdir()}
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()


def run(text: str) -> None:
    """Carry out an order, a JSON object: see ``test_partition_kills.Killer``."""
    order = json.loads(text)
    os.environ.update(order["environment"])
    os.environ.pop("NVML_STUB_KILL", None)
    library, folder = Path(order["library"]), Path(order["folder"])
    moments = Moments(folder)
    made = PartitionedNode(library, folder)
    if order["action"] in PREPARATIONS:
        PREPARATIONS[order["action"]](made)
        return
    on_point = ctypes.CFUNCTYPE(None)(moments.on_point)
    ctypes.CDLL(str(library)).nvml_stub_on_point(on_point)
    sys.addaudithook(moments.on_audit)
    act(made, order["action"], moments)
    Path(order["folder"], MOMENTS).write_text(json.dumps(moments.states))
