"""Which of the recorded devices a request of the kubelet gets: a pure choice among the pods that may be asking.

The kubelet names no pod when it asks which devices to prefer, so the pod is guessed: a pod is a candidate if it asks
for exactly this number of this resource, the kubelet has not recorded devices for it yet, and its devices are free. The
kubelet admits pods one after the other, in the order in which the API server reports them to it, which is that in which
it reports them here. So the first candidate by arrival is the pod that the kubelet is admitting. For that, pods without
a record are known, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from node.values import Value, value


@value
class ContainerSizes(Value):
    """How many devices each container of a pod asks for: containers that run side by side, and init containers."""

    together: tuple[int, ...] = ()
    before: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        """How many devices the pod has at most: init containers pass theirs on."""
        return max(sum(self.together), *self.before, 0)

    def may_ask(self, size: int, taken: int) -> bool:
        """Whether a container may ask for ``size`` devices while others of the pod have ``taken``."""
        if size in self.before and not taken:
            return True
        if size not in self.together:
            return False
        others = list(self.together)
        others.remove(size)
        sums = {0}
        for each in others:
            sums |= {each + one for one in sums}
        return taken in sums


@value
class PendingRecord(Value):
    """The record of a pod that the kubelet has not given devices yet, in ids of one resource.

    ``devices``: empty if nothing is recorded. ``is_asking``: the kubelet has not admitted the pod. ``advised``: for how
    many devices of the pod the kubelet has asked.
    """

    pod: str
    sizes: ContainerSizes
    devices: frozenset[str]
    is_asking: bool = False
    advised: int = 0


@value
class RecordedChoice(Value):
    """``pod``: the UID of the container's pod as far as can be guessed, empty if no pod fits.

    ``devices``: choose among these, which are recorded for it; empty if none are. ``promised``: devices that are
    recorded for other pods.
    """

    pod: str = ""
    devices: frozenset[str] = frozenset()
    promised: frozenset[str] = frozenset()


def choose(
    pending: Iterable[PendingRecord], available: Collection[str], required: Collection[str], size: int
) -> RecordedChoice:
    """The devices for a container that asks for ``size``: those of the first pending pod that may be asking."""
    fixed = frozenset(required)
    free = fixed.union(available)
    promised: set[str] = set()
    pod = ""
    for each in pending:
        left = each.devices & free
        if not pod and size > 0:
            taken = len(each.devices) - len(left)
            if len(left) >= size and fixed <= each.devices and each.sizes.may_ask(size, taken):
                return RecordedChoice(each.pod, left)
            if each.is_asking and each.sizes.may_ask(size, max(each.advised - len(fixed), 0)):
                # Nothing is recorded for it, or others have what is.
                pod = each.pod
                continue
        promised |= left
    return RecordedChoice(pod, promised=frozenset(promised - fixed))
