"""``python -m tests.cluster up|down|list``: a cluster for people, what ``make cluster`` runs."""

from __future__ import annotations

import argparse
import sys
import time

from tests.cluster.components.toolchain import ToolchainMissing
from tests.cluster.components.versions import CLUSTERS, UnknownVersion, newest
from tests.cluster.rig.api import NotAsExpected
from tests.cluster.rig.cluster import RigCluster, down, up
from tests.cluster.rig.place import NoPlace, places
from tests.cluster.rig.prerequisites import Missing
from tests.cluster.rig.processes import ProcessNotReady, belonging

FAULTS = (Missing, NoPlace, ProcessNotReady, NotAsExpected, ToolchainMissing, UnknownVersion, OSError)


def main(arguments: list[str]) -> int:
    """Run the command; 1 with what is wrong on stderr."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("up", "down"):
        command = commands.add_parser(name)
        command.add_argument("--name", default="default", help="the cluster's name (default: %(default)s)")
    starting = commands.choices["up"]
    starting.add_argument("--nodes", type=int, default=1, help="number of nodes (default: %(default)s)")
    starting.add_argument("--version", default=newest(), help=f"one of {', '.join(CLUSTERS)} (default: %(default)s)")
    commands.add_parser("list")
    given = parser.parse_args(arguments)
    try:
        if given.command == "up":
            began = time.monotonic()
            cluster = up(given.name, given.version, given.nodes)
            print(_usage(cluster, time.monotonic() - began))
        elif given.command == "down":
            print(
                "".join(f"{name or 'a cluster without a name'} is gone\n" for name in down(given.name))
                or "nothing is there\n",
                end="",
            )
        else:
            for place in places():
                print(f"{place.name}: {place.root}, {len(belonging(place.root))} processes")
    except FAULTS as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _usage(cluster: RigCluster, seconds: float) -> str:
    nodes = ", ".join(node.name for node in cluster.nodes)
    first = cluster.nodes[0]
    return f"""Kubernetes {cluster.version} with {nodes} is up after {seconds:.1f} s.

  export KUBECONFIG={cluster.place.kubeconfig}
  export PATH={cluster.binaries}:$PATH
  kubectl get nodes
  kubectl run box --image=local/box:1 --image-pull-policy=Never -- sleep 3600

  {" ".join(first.enter("bash"))}    # a shell inside {first.name}: its sockets and folders at their usual places
  {cluster.place.log_folder}    # a log per component

'make cluster-down' ends it and removes every trace."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
