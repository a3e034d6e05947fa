"""``python -m bench.cluster.moves [--count N]``: what moving an interface into a pod adds to the pod's start.

Two NICs with stand-ins (see ``tests.cluster.interfaces.stand_ins``): the interface of one moves, that of the other
stays on the node. Pods with one or the other take turns. The figure is for people; nothing is written.
"""

from __future__ import annotations

import argparse
import sys
import time

from bench.cluster.stage import let_nodes_read_claims
from bench.cluster.starts import LIMIT, PodFailed, RunningWatch
from bench.figures import median, percentile
from bench.results import say
from tests.cluster.__main__ import FAULTS
from tests.cluster.dra.claims import CLAIMS, CLASSES, DRIVER, NIC_CLASS, Claims, devices, request, template, user
from tests.cluster.interfaces.stand_ins import MOVING, StandIns, stand_ins
from tests.cluster.rig.agent import NodeAgent, configuration
from tests.cluster.rig.cluster import RigCluster, down, up
from tests.cluster.rig.place import name_of_run
from tests.cluster.rig.pods import RigPods
from tests.cluster.rig.processes import wait_until

MOVED, KEPT = "moved", "kept"
LIMIT_MS = 30
"""What a moved interface may add to a pod's start."""


def main() -> int:
    arguments = argparse.ArgumentParser(prog="bench.cluster.moves", description=__doc__)
    arguments.add_argument("--count", type=int, default=30, help="pods of each kind (default: %(default)s)")
    count = arguments.parse_args().count
    name = name_of_run()
    try:
        cluster = up(name, "")
        with stand_ins(cluster.nodes[0], 2) as made:
            taken = _measure(cluster, made, count)
    except (PodFailed, *FAULTS) as error:
        print(f"bench.cluster.moves: {error}", file=sys.stderr)
        return 1
    finally:
        down(name)
    say("")
    for kind, seconds in taken.items():
        print(
            f"{kind}: median {1000 * median(seconds):.0f} ms, 99th percentile {1000 * percentile(seconds, 99):.0f} ms"
        )
    more = 1000 * (median(taken[MOVED]) - median(taken[KEPT]))
    print(f"a moved interface adds {more:.0f} ms to the median; the limit is {LIMIT_MS} ms")
    return 0


def _measure(cluster: RigCluster, made: StandIns, count: int) -> dict[str, list[float]]:
    """Seconds from the creation until the pod is seen running, by kind."""
    node = cluster.nodes[0]
    let_nodes_read_claims(cluster.api)
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    cluster.api.create(
        CLASSES,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": NIC_CLASS},
            "spec": {"selectors": selectors},
        },
    )
    names = dict(zip((MOVED, KEPT), made.names, strict=True))
    resources = [
        {**MOVING, "name": f"example.com/{kind}", "devices": {"interfaces": [name]}, "moveInterface": kind == MOVED}
        for kind, name in names.items()
    ]
    kubernetes = {"kubeconfig": str(node.folder / "kubelet.kubeconfig"), "events": "off"}
    agent = NodeAgent(node, configuration(made.recorded, *resources, kubernetes=kubernetes)).start()
    claims, pods = Claims(cluster.api), RigPods(cluster.api)
    claims.wait_slices(2)
    for kind, interface in names.items():
        cel = f"device.attributes['{DRIVER}'].ifName == '{interface}'"
        claims.create(template(kind, devices(request(NIC_CLASS, "nic", cel=cel))))
    taken: dict[str, list[float]] = {kind: [] for kind in names}
    watch = RunningWatch(cluster.api)
    try:
        for number in range(-1, count):
            for kind in names:
                say(f"pods one by one: {max(number, 0)} of {count}")
                pod = f"{kind}-{number + 1}"
                began = time.monotonic()
                pods.create(user(pod, own=kind))
                seconds = watch.wait([pod])[pod] - began
                pods.delete(pod)
                wait_until("the kubelet has cleaned up", lambda: not pods.on_disk(node), LIMIT)
                wait_until("the claim is gone", lambda: not cluster.api.items(CLAIMS), LIMIT)
                if number >= 0:
                    taken[kind].append(seconds)
    finally:
        watch.close()
        agent.stop()
    return taken


if __name__ == "__main__":
    sys.exit(main())
