"""Whether the API server keeps what withdraws a device from new claims: the taints of devices in slices.

A server whose gate DRADeviceTaints is off drops them without a word. A device at both doors could then not be
withdrawn from one of them while it is held through the other.
"""

from __future__ import annotations

from enum import StrEnum

from node.values import Value, value


class Taints(StrEnum):
    """What becomes of a device's taints."""

    KEPT = "kept"
    DROPPED = "dropped"
    UNKNOWN = "unknown"


@value
class TaintSupport(Value):
    """``text``: how that is known, or why it is not, with what helps; ``server``: the release that it was asked of."""

    taints: Taints = Taints.UNKNOWN
    text: str = "the API server has not been asked yet whether it keeps device taints"
    server: str = ""

    @property
    def kept(self) -> bool:
        """Whether devices can be withdrawn by a taint, for certain."""
        return self.taints is Taints.KEPT
