"""What the kubelet itself has on record of claims: proof of which ones it still knows.

The kubelet enters a claim before it asks for it to be prepared and strikes it out after it was released; so a claim
that a readable file does not have is used by no container and is under way to none.

A container that was given the file alone, and not its folder, soon sees an old one: the kubelet replaces the file with
every change. What that one said when it was new still counts for every claim that was not asked for since, because no
claim gets into the kubelet's file, and from there to a container, but by way of a question to us.
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

    ``stale``: the file was replaced, and the old one is all that can be seen here; what it said last is known if it was
    ever read before. ``asked``: UIDs of claims that were asked for since then, and of which nothing is known.
    """

    claims: Mapping[str, ClaimInfo]
    fault: str = ""
    stale: bool = False
    asked: frozenset[str] = frozenset()

    def lacks(self, uid: str) -> bool:
        """Whether the kubelet certainly does not know the claim."""
        return not self.fault and uid not in self.claims and uid not in self.asked


class KubeletFile:
    """The file in the kubelet's root, and what it said last; for the event loop alone.

    ``read``: reads it now, in a thread.
    """

    def __init__(self, read: Callable[[], Awaitable[KubeletClaims]]) -> None:
        self._read = read
        self._questions = 0
        self._asked: dict[str, int] = {}
        """Numbers of the last questions for claims that are not released, as far as they are later than ``_last``."""
        self._last: tuple[int, KubeletClaims] | None = None
        """How many questions there had been when the file was read, and what it said."""

    def asked(self, uid: str) -> None:
        """The claim is asked for: from now on the kubelet may have it. In the claim's turn."""
        self._questions += 1
        self._asked[uid] = self._questions

    def released(self, uid: str) -> None:
        """The claim is released: nothing has it that was not asked for later. In the claim's turn."""
        self._asked.pop(uid, None)

    async def claims(self) -> KubeletClaims:
        """What the file says, or said when it could be seen last."""
        at = self._questions
        found = await self._read()
        stale = found.stale
        if self._last is not None and (stale or at < self._last[0]):
            # Also where another reading began later and was quicker.
            at, found = self._last
        elif not found.fault:
            self._last = at, found
            self._asked = {uid: number for uid, number in self._asked.items() if number > at}
        asked = frozenset(uid for uid, number in self._asked.items() if number > at)
        return replace(found, stale=stale, asked=asked)


def read_kubelet_claims(root: Path) -> KubeletClaims:
    """The file in the kubelet's root, read now; blocking.

    A missing one proves nothing, since a kubelet always has one. Nor does one without a name: it was replaced.
    """
    from node.kubelet.dra_state import (  # Not at the start: first the kubelet is registered with.
        FILE_NAME,
        DraStateError,
        decode,
    )

    path = root / FILE_NAME
    try:
        # Also through a link: whatever it leads to must carry the kubelet's own checksum.
        with opened(path, links=True) as descriptor:
            state = decode(content(descriptor, path, KUBELET_STATE))
            replaced = os.fstat(descriptor).st_nlink == 0
    except (OSError, DraStateError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        return KubeletClaims({}, f"{path} cannot be used: {reason}")
    if replaced:
        return KubeletClaims({}, f"{path} was replaced since this container started", stale=True)
    return KubeletClaims({claim.uid: claim for claim in state.claims or ()})
