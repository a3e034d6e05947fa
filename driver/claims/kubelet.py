"""What the kubelet itself has on record of claims: proof of which ones it still knows.

The kubelet enters a claim before it asks for it to be prepared and strikes it out after it was released; so a claim
that a readable file does not have is used by no container and is under way to none. Blocking; for worker threads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from node.values import Value, value

if TYPE_CHECKING:
    from node.dra_state import ClaimInfo


@value
class KubeletClaims(Value):
    """Claims by UID; ``fault`` says why nothing is known, and is empty otherwise.

    ``stale``: the fault is that the file was replaced, and the old one is all that can be seen here.
    """

    claims: Mapping[str, ClaimInfo]
    fault: str = ""
    stale: bool = False

    def lacks(self, uid: str) -> bool:
        """Whether the kubelet certainly does not know the claim."""
        return not self.fault and uid not in self.claims


def read_kubelet_claims(root: Path) -> KubeletClaims:
    """The file in the kubelet's root; a missing one proves nothing, since a kubelet always has one.

    Nor does one without a name: a container that was given the file alone, and not its folder, goes on seeing the file
    that was there when it began, although the kubelet replaces it with every change.
    """
    from node.dra_state import (
        FILE_NAME,
        DraStateError,
        decode,
    )  # Not at the start: first the kubelet is registered with.

    path = root / FILE_NAME
    try:
        with path.open("rb") as file:
            state = decode(file.read())
            replaced = os.fstat(file.fileno()).st_nlink == 0
    except (OSError, DraStateError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        return KubeletClaims({}, f"{path} cannot be used: {reason}")
    if replaced:
        return KubeletClaims({}, f"{path} was replaced since this container began", stale=True)
    return KubeletClaims({claim.uid: claim for claim in state.claims or ()})
