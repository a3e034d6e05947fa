"""Rules of starts and ends that are the same for plugins and drivers.

Kubernetes starts and ends the pods of both in the same way, and the kubelet knows both by their sockets.
"""

from __future__ import annotations

from sandbox.conformance.rule import NotReady, RuleBroken, RuleNotApplicable
from sandbox.conformance.testbed import ProgramTestbed


async def has_registered(bed: ProgramTestbed) -> None:
    """Start the program and wait until it has registered; raises ``RuleBroken`` if it does not."""
    if not bed.has_program:
        raise RuleNotApplicable("no registration can be seen; give the command, not a socket")
    try:
        await bed.prepare()
    except NotReady as problem:
        raise RuleBroken(str(problem)) from problem


async def starts_before_kubelet(bed: ProgramTestbed) -> str | None:
    """Check that it registers with a kubelet that starts later: nothing orders the two starts."""
    await bed.begin(kubelet=False)
    await bed.rest()
    await bed.kubelet.start()
    missing = await bed.registered_after(0, bed.resources)
    if missing:
        raise RuleBroken(f"the kubelet started after the {bed.name}: {missing}")
    return bed.own_end


async def ends_in_grace(bed: ProgramTestbed) -> str | None:
    """Check that it ends on SIGTERM: Kubernetes kills it when its grace period is over."""
    end, _ = await bed.end()
    if not end.in_time:
        raise RuleBroken(f"it still ran {bed.pace.grace:g} s after SIGTERM, and was killed")
    return f"it ended {end.seconds:.1f} s after SIGTERM"


async def removes_sockets(bed: ProgramTestbed) -> str | None:
    """Check that it removes its sockets: a kubelet dials one that nobody serves, or takes it for registered."""
    end, left = await bed.end()
    if not end.in_time:
        raise RuleNotApplicable("it had to be killed; the rule ends-in-grace judges that")
    if left:
        raise RuleBroken(f"it ended and left {', '.join(left)}")
    return None
