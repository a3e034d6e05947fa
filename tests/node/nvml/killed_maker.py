"""Runs a scenario of the partition maker in a process that dies at a chosen point; see ``test_partition_kills``.

The process is one of ``tests.making.dying``. The NVML library counts points and kills at one of them; a file operation
of the journal is one more, seen by an audit hook.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pynvml

from node.inventory.nvidia import nvml_profiles
from node.inventory.nvidia.nvml_mig import MigCalls
from node.partitions import MigLayout
from tests.making.mig_nodes import Partitioned, shape_of

LAYOUT = MigLayout(("3g.40gb", "1g.10gb"))
PRELOADED = (nvml_profiles, pynvml)
"""What the agent imports late: here once, and not in every child."""
FILE_OPERATIONS = ("os.rename", "os.remove")


def foreign(made: Partitioned, profile: str, at: int, *, compute: bool = True) -> None:
    """Somebody else makes an instance of the first GPU."""
    binding = made.source.sessions.current
    assert binding is not None
    calls, gpu, shape = MigCalls(binding), made.gpu(), made.shape(profile, at)
    handle = calls.gpu(gpu.uuid or "", gpu.index)
    calls.set_mode(handle, on=True)
    instance = calls.create_instance(handle, shape.profile_id, shape.start, shape.size)
    if compute:
        calls.create_compute_instance(instance, calls.full_profile(instance)[0])


def make(made: Partitioned, owner: str, profile: str, at: int) -> None:
    """The maker makes a partition of the first GPU."""
    made.maker.make(made.gpu(), made.shape(profile, at), owner)


def nothing(made: Partitioned) -> None:
    """A GPU as it comes."""


def beside(made: Partitioned) -> None:
    """A partition of another claim, and one of somebody else."""
    make(made, "other", "1g.10gb", 0)
    foreign(made, "1g.10gb", 1)


def made_beside(made: Partitioned) -> None:
    """The claim's partition beside them."""
    beside(made)
    make(made, "claim", "3g.40gb", 4)


def existing(made: Partitioned) -> None:
    """Somebody else's instance where the claim's partition shall be."""
    beside(made)
    foreign(made, "3g.40gb", 4)


def empty(made: Partitioned) -> None:
    """Somebody else's GPU instance, without a compute instance, where the claim's partition shall be."""
    beside(made)
    foreign(made, "3g.40gb", 4, compute=False)


def several(made: Partitioned) -> None:
    """Two partitions of the claim."""
    made_beside(made)
    make(made, "claim", "1g.10gb", 2)


def unused(made: Partitioned) -> None:
    """MIG mode on and nothing in it."""
    make(made, "claim", "1g.10gb", 2)
    made.maker.remove("claim")


def divided(made: Partitioned) -> None:
    """A former layout beside an instance of somebody else."""
    foreign(made, "1g.10gb", 1)
    made.maker.apply_layout(made.gpu(), MigLayout(("2g.20gb", "1g.10gb", "1g.10gb")))


PREPARATIONS: dict[str, Callable[[Partitioned], None]] = {
    each.__name__: each for each in (nothing, beside, made_beside, existing, empty, several, unused, divided)
}


def act(made: Partitioned, action: str) -> None:
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
    _arm()
    chosen()


_armed = {"operation": -1, "seen": 0}


def _arm() -> None:
    os.environ["NVML_STUB_KILL"] = os.environ.pop("KILL_POINT", "0")
    _armed["operation"], _armed["seen"] = int(os.environ.pop("KILL_OPERATION", "0")), 0


def _hook(event: str, _: object) -> None:
    if _armed["operation"] >= 0 and event in FILE_OPERATIONS:
        _armed["seen"] += 1
        if _armed["seen"] == _armed["operation"]:
            os.kill(os.getpid(), signal.SIGKILL)


def run(text: str) -> None:
    """Carry out an order, a JSON object: see ``test_partition_kills.Killer``."""
    order = json.loads(text)
    os.environ.update(order["environment"])
    os.environ.pop("NVML_STUB_KILL", None)
    sys.addaudithook(_hook)
    library = Path(order["library"])
    made = Partitioned(library, Path(order["folder"]))
    if order["action"] in PREPARATIONS:
        PREPARATIONS[order["action"]](made)
    else:
        act(made, order["action"])
    points = ctypes.CDLL(str(library)).nvml_stub_points()
    Path(order["folder"], "counts").write_text(json.dumps({"points": points, "operations": _armed["seen"]}))
