"""``python -m tests.cluster.components tools|cluster [VERSION]``: build what tests need, and say where it is.

``older``: say which versions of Kubernetes can be had besides the default.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.cluster.components.build import containerd, kubernetes, tools
from tests.cluster.components.toolchain import ToolchainMissing
from tests.cluster.components.versions import CLUSTERS, UnknownVersion, newest
from tests.cluster.rig.prerequisites import Missing, check


def main(arguments: list[str]) -> int:
    """Build what is named; 1 with what is missing on stderr."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.components", description=__doc__)
    what = "tools: helm and grpcurl; cluster: everything; older: nothing"
    parser.add_argument("what", choices=("tools", "cluster", "older"), help=what)
    parser.add_argument("version", nargs="?", default=newest(), help=f"of Kubernetes, one of {', '.join(CLUSTERS)}")
    given = parser.parse_args(arguments)
    if given.what == "older":
        print(" ".join(reversed(CLUSTERS[:-1])))
        return 0
    try:
        if given.what == "cluster":
            check()
            print(f"{kubernetes(given.version)}\n{containerd()}")
        print(tools())
    except (Missing, ToolchainMissing, UnknownVersion, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
