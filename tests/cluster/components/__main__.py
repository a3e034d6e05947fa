"""``python -m tests.cluster.components [VERSION]``: build what a cluster needs, and say where it is."""

from __future__ import annotations

import sys

from tests.cluster.components.build import UnknownVersion, containerd, kubernetes, newest, tools
from tests.cluster.components.toolchain import ToolchainMissing
from tests.cluster.rig.prerequisites import Missing, check


def main(arguments: list[str]) -> int:
    """Build everything; 1 with what is missing on stderr."""
    try:
        check()
        for folder in (kubernetes(arguments[0] if arguments else newest()), containerd(), tools()):
            print(folder)  # the answer of this command
    except (Missing, ToolchainMissing, UnknownVersion) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
