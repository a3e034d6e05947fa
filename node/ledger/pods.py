"""The question that the ledger asks about this node's pods, and the answer where no API server is used.

``driver/node_watch`` answers it from a watch of the node's pods.
"""

from __future__ import annotations

from typing import Protocol


class PodsKnown(Protocol):
    """The API server's reports about this node's pods; answers from memory."""

    def gone(self, uid: str) -> bool:
        """Whether the pod has certainly left this node or ended for good; False while that is unknown.

        A UID that is not known yet is not gone: the kubelet may have seen its pod first. A static pod's UID is that of
        its manifest, not of its mirror.
        """

    def name_of(self, uid: str) -> str:
        """``namespace/name`` of a pod, empty when unknown."""

    def uid_of(self, name: str) -> str:
        """The kubelet's UID of this node's pod that has this name, empty when unknown."""


class NoPodsKnown:
    """``PodsKnown`` for an agent without an API server: no pod is known, and every entry holds."""

    def gone(self, uid: str) -> bool:
        """No pod is known to be gone."""
        return False

    def name_of(self, uid: str) -> str:
        """No pod's name is known."""
        return ""

    def uid_of(self, name: str) -> str:
        """No pod's UID is known."""
        return ""
