"""Reads the kubelet's own record of claims, which proves which claims it still knows.

The kubelet records a claim before it asks for its preparation, and removes it after its release. So if a readable file
does not have a claim, no container uses it or is about to.

A container into which the file alone was mounted, and not its folder, soon sees an old file, because the kubelet
replaces the file with every change. An old file still counts for every claim that the kubelet has not asked for since:
a claim enters the file, and then a container, only by way of a call to us.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from node.opening import KUBELET_STATE, content, opened
from node.values import Value, replace, value

if TYPE_CHECKING:
    from node.kubelet.dra_state import ClaimInfo


@value
class KubeletClaims(Value):
    """Claims by UID; ``fault`` says why nothing is known, and is empty otherwise.

    ``stale``: the kubelet has replaced the file and only the old one is visible here; its last content is known if it
    was ever read. ``asked``: UIDs of claims that were requested since then, about which nothing is known.
    """

    claims: Mapping[str, ClaimInfo]
    fault: str = ""
    stale: bool = False
    asked: frozenset[str] = frozenset()

    def lacks(self, uid: str) -> bool:
        """Whether the kubelet certainly does not know the claim."""
        return not self.fault and uid not in self.claims and uid not in self.asked


class KubeletFile:
    """The file in the kubelet's root and its last content; for the event loop only.

    ``read``: reads the file, in a thread.
    """

    def __init__(self, read: Callable[[], Awaitable[KubeletClaims]]) -> None:
        self._read = read
        self._questions = 0
        self._asked: dict[str, int] = {}
        """For each claim that is not released, the number of its last request, if that is later than ``_last``."""
        self._last: tuple[int, KubeletClaims] | None = None
        """How many requests there had been when the file was read, and its content."""

    def asked(self, uid: str) -> None:
        """Note a request for the claim: from now on the kubelet may have it. Call it with the claim locked."""
        self._questions += 1
        self._asked[uid] = self._questions

    def released(self, uid: str) -> None:
        """Note the claim's release: only a later request can make it used again. Call it with the claim locked."""
        self._asked.pop(uid, None)

    async def claims(self) -> KubeletClaims:
        """The content of the file, or its last content when it could be read."""
        at = self._questions
        found = await self._read()
        stale = found.stale
        if self._last is not None and (stale or at < self._last[0]):
            # Another reading may have begun later and ended earlier.
            at, found = self._last
        elif not found.fault:
            self._last = at, found
            self._asked = {uid: number for uid, number in self._asked.items() if number > at}
        asked = frozenset(uid for uid, number in self._asked.items() if number > at)
        return replace(found, stale=stale, asked=asked)


def read_kubelet_claims(root: Path) -> KubeletClaims:
    """Read the file in the kubelet's root; blocking.

    A missing file proves nothing, because a kubelet always has one. Nor does an unlinked one: it was replaced.
    """
    # Here and not above: at the start, registration comes first.
    from node.kubelet.dra_state import FILE_NAME, decode
    from node.kubelet.gojson import KubeletStateError

    path = root / FILE_NAME
    try:
        # Follows a link as well: whatever it leads to must have the kubelet's own checksum.
        with opened(path, links=True) as descriptor:
            state = decode(content(descriptor, path, KUBELET_STATE))
            replaced = os.fstat(descriptor).st_nlink == 0
    except (OSError, KubeletStateError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        return KubeletClaims({}, f"{path} cannot be used: {reason}")
    if replaced:
        return KubeletClaims({}, f"{path} was replaced since this container started", stale=True)
    return KubeletClaims({claim.uid: claim for claim in state.claims or ()})
