"""The prompt's commands about claims."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from node.documents import DocumentRefused
from node.named_files import read_named_file
from node.yaml_text import parse_yaml_all
from sandbox.claimtour import has_interface, moved
from sandbox.cluster import samples
from sandbox.cluster.client import RequestRefused
from sandbox.cluster.cluster import PodOutcome, SandboxCluster, UnknownKind
from sandbox.cluster.manifests import ManifestError
from sandbox.cluster.views import claim_view, outcome_view, slice_lines, slice_view
from sandbox.kubelet.dra.manager import UnprepareError
from sandbox.kubelet.dra.settings import ApiFailed
from sandbox.node import SandboxNode
from sandbox.steps import brief, echo, indented

HELP = """\
  slices [DEVICE]          what is published for claims, of one device all that there is
  claim [COUNT [MATCH]]    a pod with a claim for GPUs that agree in an attribute (cell4, ...); what its container gets
  claims                   claims, their devices, and who has them
  move                     move a NIC's interface into a pod and back, in network namespaces of the kernel (needs root)
  apply FILE               create the objects of a manifest; its pods are run
  retry POD                try again with a pod that waits
  explain POD              why a pod waits, or what it would get
  pools [WORDS]            what is free, or where a need would fit (as 'ostler pools': view, explain "2 gpu")
  fit FILE [COPIES]        how many of a manifest's pods would fit; COPIES may be 'max'
"""

MAX_MANIFEST = 16 << 20
"""Bytes of a manifest that is applied."""
NO_NETWORK = "this sandbox has no network namespaces: it has them on a recorded node without --config"
NO_CLUSTER = "this sandbox runs without an API server"


class ClaimCommands:
    """Commands by name; each gets its words and reports what it saw."""

    def __init__(self, node: SandboxNode) -> None:
        self._node = node
        self._numbers = itertools.count(1)
        self.pods: dict[str, PodOutcome] = {}
        """Pods that were run here, by name."""
        self.commands: Mapping[str, Callable[[Sequence[str]], Awaitable[None]]] = {
            name: self._with_cluster(command)
            for name, command in (
                ("slices", self._slices),
                ("claim", self._claim),
                ("claims", self._claims),
                ("move", self._move),
                ("apply", self._apply),
                ("retry", self._retry),
                ("explain", self._explain),
                ("fit", self._fit),
                ("pools", self._pools),
            )
        }

    def _place(self, pod: str) -> tuple[str, str]:
        """Name and namespace of a pod; of one that was not run here the default namespace."""
        return pod, self.pods[pod].namespace if pod in self.pods else "default"

    async def end(self, pod: str) -> None:
        """End a pod that was run here and wait until what it had is offered again; raises KeyError, TimeoutError."""
        if pod not in self.pods:
            raise KeyError(pod)
        name, namespace = self._place(pod)
        await self._node.waits.seen()
        await self._with_cluster(self._end)((pod,))
        await self._node.waits.freed(name, namespace)

    async def evict(self) -> None:
        """End pods whose devices' taints say so and wait until what they had is free; raises TimeoutError."""
        if self._node.cluster is None:
            return
        evicted = await self._node.cluster.evict()
        for (_, pod), reason in evicted.items():
            self.pods.pop(pod, None)
            echo(f"pod {pod} is evicted: {reason}")
        for namespace, name in evicted:
            await self._node.waits.freed(name, namespace)

    def _with_cluster(
        self, command: Callable[[SandboxCluster, Sequence[str]], Awaitable[None]]
    ) -> Callable[[Sequence[str]], Awaitable[None]]:
        """Run the command with a cluster, and print its errors."""

        async def run(words: Sequence[str]) -> None:
            if self._node.cluster is None:
                echo(NO_CLUSTER)
                return
            try:
                await command(self._node.cluster, words)
            except OSError as error:
                echo(f"{error.filename}: {error.strerror}")
            except (ApiFailed, UnprepareError, ManifestError, UnknownKind, DocumentRefused) as error:
                echo(error)

        return run

    async def _slices(self, cluster: SandboxCluster, words: Sequence[str]) -> None:
        views = [slice_view(each) for each in await cluster.slices()]
        if words:
            found = [device for view in views for device in view["devices"] if device["name"] == words[0]]
            sys.stdout.write(indented(found[0]) if found else f"   no slice has a device {words[0]!r}\n")
        else:
            sys.stdout.write("".join(f"   {line}\n" for line in slice_lines(views)) or "   none\n")

    async def _claims(self, cluster: SandboxCluster, words: Sequence[str]) -> None:
        _list([claim_view(each) for each in await cluster.claims()])

    async def _claim(self, cluster: SandboxCluster, words: Sequence[str]) -> None:
        count = int(words[0]) if words else 1
        if count < 1 or len(words) > 2:
            raise ValueError(words)
        name = f"claim-pod-{next(self._numbers)}"
        await cluster.apply([samples.template(name, count, match=words[1] if len(words) == 2 else "")])
        self._ran(await cluster.run(samples.pod(name, name)))

    async def _move(self, cluster: SandboxCluster, words: Sequence[str]) -> None:
        network = self._node.network
        if network is None or self._node.configuration is None:
            echo(self._node.unconnected or NO_NETWORK)
            return
        devices = (each for one in await cluster.slices() for each in one["spec"].get("devices") or ())
        nic = next((each for each in devices if has_interface(each) and not each.get("taints")), None)
        if nic is None:
            echo("no NIC with an interface is offered and free on this node")
        else:
            sys.stdout.write("\n".join(brief(await moved(self._node, cluster, network, nic))) + "\n")

    async def _apply(self, cluster: SandboxCluster, words: Sequence[str]) -> None:
        text = read_named_file(Path(words[0]), MAX_MANIFEST, fifo=True)
        documents = [each for each in parse_yaml_all(text) if each]
        for document in documents:
            if not isinstance(document, dict):
                raise UnknownKind(str(document))
            try:
                outcomes = await cluster.apply([document])
            except RequestRefused as error:
                # The others of the file may be fine.
                echo(error)
                continue
            for outcome in outcomes:
                self._ran(outcome)
            if not outcomes:
                echo(f"{document['kind']} {document['metadata'].get('name', '')} created")
        # A DeviceTaintRule may be among them.
        await self.evict()

    async def _retry(self, cluster: SandboxCluster, words: Sequence[str]) -> None:
        self._ran(await cluster.retry(*self._place(words[0])))

    async def _explain(self, cluster: SandboxCluster, words: Sequence[str]) -> None:
        echo(*(await self._node.explained(*self._place(words[0]))).splitlines())

    async def _fit(self, cluster: SandboxCluster, words: Sequence[str]) -> None:
        if not 1 <= len(words) <= 2:
            raise ValueError(words)
        echo(*(await self._node.fitted(words[0], words[1] if len(words) == 2 else "1")).splitlines())

    async def _pools(self, cluster: SandboxCluster, words: Sequence[str]) -> None:
        echo(*(await self._node.pools(words or ("view",))).splitlines())

    async def _end(self, cluster: SandboxCluster, words: Sequence[str]) -> None:
        await cluster.end(*self._place(words[0]))
        del self.pods[words[0]]

    def _ran(self, outcome: PodOutcome) -> None:
        self.pods[outcome.pod] = outcome
        sys.stdout.write(indented(outcome_view(outcome)))


def _list(seen: Sequence[object]) -> None:
    sys.stdout.write(indented(seen) if seen else "   none\n")
