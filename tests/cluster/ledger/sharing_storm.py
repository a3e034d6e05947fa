"""A storm of pods that take GPUs whole, in shares and in partitions, through both doors at once.

A pod's name begins with how many thousandths of a GPU it asks for, by which ``overlaps`` adds up what the containers of
a GPU have. The node's GPUs are of three kinds: shared ones, whole ones, and ones of which partitions are made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.cluster.dra.claims import GPU_CLASS, MIG_CLASS, devices, request, template
from tests.cluster.ledger.forced import ForcedStorm
from tests.cluster.ledger.storm import GPU, Storm
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import PODS, simple

SHARED = f"{GPU}.shared"
REPLICAS = 4
MEMORY = 80
"""GiB of a GPU."""


def named(*addresses: str) -> Object:
    """The GPUs at these buses."""
    return {"kind": "gpu", "vendor": "nvidia", "name": [f"gpu-0000-{address}-00-0" for address in addresses]}


def resources(*, partitions: bool) -> tuple[Object, ...]:
    """What the agent offers of a node ``h100-sxm-8``; ``partitions``: make them of its last two GPUs."""
    shared: Object = {
        "name": SHARED,
        "door": "both",
        "devices": named("1b", "43", "52"),
        "sharing": {"strategy": "timeSlicing", "replicas": REPLICAS},
    }
    parted: Object = {"name": f"{GPU}-parts", "door": "dra", "devices": named("c3", "d1"), "partitions": "onDemand"}
    whole: Object = {"name": GPU, "door": "both", "devices": {"kind": "gpu"}}
    return (shared, parted, whole) if partitions else (shared, whole)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a pod asks for: ``thousandths`` of a GPU by a resource's name, or by a claim made from a template."""

    label: str
    thousandths: int
    resource: str = ""
    spec: Object | None = None

    def pod(self, number: int, seconds: float, grace: int) -> Object:
        """A pod that has it for so long, and that no SIGTERM ends."""
        name = f"{self.thousandths}m-{number}-{self.label}"
        command = f"trap '' TERM; sleep {seconds}"
        body = simple(name, command, {self.resource: 1} if self.resource else {}, terminationGracePeriodSeconds=grace)
        if self.spec is not None:
            body["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
            body["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": self.label}]
        body["metadata"]["labels"] = {"storm": self.label}
        return body


def _share(memory: int) -> Object:
    """A claim for some GiB of a shared GPU, and as much of its compute."""
    consumed = {"memory": f"{memory}Gi", "compute": str(100 * memory // MEMORY)}
    return devices(request(cel=_of(SHARED), capacity={"requests": consumed}))


def _of(resource: str) -> str:
    return f'device.attributes["ostler.dev"].resource == "{resource}"'


def _part(profile: str) -> Object:
    return devices(request(MIG_CLASS, cel=f'device.attributes["ostler.dev"].profile == "{profile}"'))


SHARES = (
    Wish("share", 1000 // REPLICAS, SHARED),
    Wish("claimed-share", 1000 // REPLICAS, spec=devices(request(GPU_CLASS, cel=_of(SHARED)))),
    Wish("small-share", 125, spec=_share(MEMORY // 8)),
    Wish("large-share", 750, spec=_share(MEMORY * 3 // 4)),
    Wish("whole", 1000, GPU),
    Wish("claimed-whole", 1000, spec=devices(request(GPU_CLASS, cel=_of(GPU)))),
)
PARTITIONS = (
    Wish("part-1g", 125, spec=_part("1g.10gb")),
    Wish("part-2g", 250, spec=_part("2g.20gb")),
    Wish("part-3g", 500, spec=_part("3g.40gb")),
    Wish("undivided", 1000, spec=devices(request(GPU_CLASS, cel=_of(f"{GPU}-parts")))),
)


class SharingStorm(ForcedStorm):
    """Pods with random wishes, which end, are deleted by force and are evicted."""

    def __init__(
        self,
        api: RigApi,
        node: RigNode,
        storm: Storm,
        random: Random,
        kill: Callable[[str], None],
        *,
        wishes: tuple[Wish, ...],
    ) -> None:
        super().__init__(api, node, storm, random, kill)
        self._wishes = wishes

    def templates(self) -> list[Object]:
        """The templates that the pods' claims are made from."""
        return [template(wish.label, wish.spec) for wish in self._wishes if wish.spec is not None]

    def _create_some(self, number: int) -> None:
        for _ in range(number):
            wish = self._random.choice(self._wishes)
            seconds, grace = self._random.choice((0.3, 2.0, 20.0, 20.0)), self._random.choice((0, 2, 4))
            self._api.create(PODS, wish.pod(self.created, seconds, grace))
            self.created += 1
