"""How the standalone kubelet is set up, and which folders it may use.

It never touches the folder of a real kubelet, nor one that another kubelet serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from node.sockets import is_answered
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.plugin_process import BUILT_IN, GRACE_SECONDS
from sandbox.kubelet.topology import TopologyManager

LONGEST_ROOT = 60
"""Bytes of the root's path: sockets have 107 in all, and those below it have long names."""

WAIT_SECONDS = 30.0
"""How long a plugin may take to register, unless the caller says otherwise."""

_REAL = ("pki", "pods", "config.yaml")
"""Names in the folder of a kubelet that runs, or ran, containers."""


class StandaloneError(Exception):
    """The node cannot start, or the plugin did not do what it was waited for; the text says what to look at."""


@dataclass(frozen=True, slots=True)
class StandaloneSettings:
    """How the node is set up. ``root`` None: a temporary folder; ``command`` empty: plugins are started elsewhere.

    ``environment`` is added to the command's. ``call_timeout``: seconds, None for ever, as in real kubelets.
    ``wait``: seconds that a plugin may take to register. ``seed``: devices are chosen at random by it, None: in order.
    """

    root: Path | None = None
    topology: TopologyManager = field(default_factory=TopologyManager)
    generation: Generation = "1.36"
    api_server: bool = False
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    node_name: str = "node"
    call_timeout: float | None = None
    wait: float = WAIT_SECONDS
    grace: float = GRACE_SECONDS
    reconcile_interval: float = 0.2
    seed: int | None = None


def check_root(root: Path) -> None:
    """Raise ``StandaloneError`` for a folder that no kubelet of ours may use."""
    size = len(bytes(root))
    if size > LONGEST_ROOT:
        raise StandaloneError(
            f"--root: {root} has {size} bytes; the limit is {LONGEST_ROOT}, because a socket's path has 107 bytes in "
            "all; name a shorter folder or leave --root out"
        )
    if root.resolve() == BUILT_IN.resolve():
        raise StandaloneError(
            f"--root: {BUILT_IN} is the folder of this machine's own kubelet; name another folder or leave --root out: "
            f"the plugin's command finds it at {BUILT_IN} anyway"
        )
    if root.exists() and not root.is_dir():
        raise StandaloneError(f"--root: {root} is not a folder; name a folder")
    served = root / "device-plugins" / "kubelet.sock"
    if is_answered(served):
        raise StandaloneError(f"--root: a kubelet already serves {served}; name another folder or end that kubelet")
    found = next((name for name in _REAL if (root / name).exists()), None)
    if found is not None:
        raise StandaloneError(
            f"--root: {root} has {found}, so it is the folder of a real kubelet, which would lose its state; "
            "name another folder"
        )
