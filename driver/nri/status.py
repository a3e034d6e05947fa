"""Whether the container runtime reports sandboxes to ostler, and why not."""

from __future__ import annotations

from enum import StrEnum

from node.values import Value, value


class NriState(StrEnum):
    """The state of the connection to the runtime."""

    ABSENT = "absent"
    """No runtime serves NRI: no socket, nobody listens there, or the connection ended."""
    REFUSED = "refused"
    """The runtime does not accept this plugin."""
    CONNECTED = "connected"
    """Registered, configured and synchronized."""


@value
class NriStatus(Value):
    """``since``: Unix seconds of the last change of ``state``. ``reason``: one sentence, empty when connected.

    ``runtime``: name and version, as ``containerd v2.1.0``; empty unless connected.
    """

    state: NriState
    since: float
    reason: str = ""
    runtime: str = ""


@value
class NriChanged(Value):
    """An event: the state or its reason has changed."""

    status: NriStatus
