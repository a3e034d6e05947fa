"""Reads each recorded node once per process, and not once per test: 20 ms for eight GPUs, a thousand times in a run.

What is kept is known by its text, so that a node that a test has changed, or broken, is read as always. Recordings are
immutable. Tests of the reading itself call ``document.load``, which keeps nothing.
"""

from __future__ import annotations

from node.inventory.recordings import document, source
from node.inventory.recordings.document import Recording
from ostler.config.load import load_bytes
from sandbox.nodes import path

OFTEN = ("a100-mig-4", "h100-sxm-8", "l4-2", "sriov-2")
"""Nodes that most agents run on."""
SETTINGS = b"""\
apiVersion: ostler.dev/v1alpha1
kind: Config
resources:
- {name: example.com/gpu, devices: {kind: gpu}, door: both, sharing: {replicas: 2}}
- {name: example.com/mig, devices: {kind: mig}, uniform: false}
- {name: example.com/nic, devices: {kind: nic}}
"""
"""Settings much as most agents have them; what is in them does not matter."""

MOST = 24
"""Recordings that are kept: all of the sandbox's, and as many of tests."""

_kept: dict[str, Recording] = {}


def load(text: str, source_name: str) -> Recording:
    """``document.load`` of a text that was not read lately; what was read then, of one that was."""
    found = _kept.pop(text, None) or document.load(text, source_name)
    _kept[text] = found
    if len(_kept) > MOST:
        _kept.pop(next(iter(_kept)), None)
    return found


def read_often() -> None:
    """Read the nodes that most agents run on, for the forks of this process, and settings.

    The first settings that a process reads compile patterns, for a third of the time; its forks have them.
    """
    source.load = load
    for name in OFTEN:
        source.read(path(name))
    load_bytes("settings", SETTINGS, {}, {})
