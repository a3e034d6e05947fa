"""How plugins and drivers end: the rules that are the same for both.

Kubernetes ends the pod of either in the same way, and the kubelet knows either by its sockets.
"""

from __future__ import annotations

from sandbox.conformance.rule import RuleBroken, RuleNotApplicable
from sandbox.conformance.testbed import ProgramTestbed


async def ends_in_grace(bed: ProgramTestbed) -> str | None:
    """Kubernetes ends a pod by SIGTERM, and by SIGKILL when its grace period is over."""
    end, _ = await bed.end()
    if not end.in_time:
        raise RuleBroken(f"it still ran {bed.pace.grace:g} s after SIGTERM, and was killed")
    return f"it ended {end.seconds:.1f} s after SIGTERM"


async def removes_sockets(bed: ProgramTestbed) -> str | None:
    """A kubelet goes on dialling a socket that nobody serves; a registration socket's removal says that it is gone."""
    end, left = await bed.end()
    if not end.in_time:
        raise RuleNotApplicable("it had to be killed; the rule ends-in-grace judges that")
    if left:
        raise RuleBroken(f"it ended and left {', '.join(left)}")
    return None
