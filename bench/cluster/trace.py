"""``python -m bench.cluster.trace [--count N]``: where the milliseconds of a pod's start go, hop by hop.

Pods with a claim (of ostler, of the Go driver) and pods with a device of the bare plugin take turns on a cluster whose
components log every step. Each row is a moment in a pod's start: the median time since the row before it that this
kind of pod has, and since the pod's creation. What the logs cost is in the times, for all kinds alike: the table shows
shares, ``make cluster-bench`` what people wait for. It is for people; nothing is written.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.cluster.figures import CLAIM, FLOOR, PEER_CLAIM
from bench.cluster.moments import Moment, moments
from bench.cluster.stage import BenchStage, stage
from bench.cluster.starts import PodFailed, one_by_one
from bench.figures import median
from bench.results import say
from tests.cluster.__main__ import FAULTS
from tests.cluster.rig.control_plane import AUDIT
from tests.cluster.rig.processes import log_of

TRACED = (CLAIM, PEER_CLAIM, FLOOR)
TITLES = {CLAIM: "claim, ostler", PEER_CLAIM: "claim, Go driver", FLOOR: "bare plugin"}
Traces = Mapping[str, Mapping[Moment, float]]
"""By name of a pod, when each moment was."""


def main() -> int:
    arguments = argparse.ArgumentParser(prog="bench.cluster.trace", description=__doc__)
    arguments.add_argument("--count", type=int, default=30, help="pods of each kind (default: %(default)s)")
    arguments.add_argument("--logs", type=Path, help="keep the components' logs in this folder")
    given = arguments.parse_args()
    try:
        with stage(traced=True) as made:
            one_by_one(made, given.count, say, TRACED)
            found = _read(made)
            if given.logs is not None:
                shutil.copytree(made.cluster.place.log_folder, given.logs, dirs_exist_ok=True)
    except (PodFailed, *FAULTS) as error:
        print(f"bench.cluster.trace: {error}", file=sys.stderr)
        return 1
    say("")
    print(table(found))
    return 0


def _read(made: BenchStage) -> Traces:
    root, node = made.cluster.place.root, made.node.name
    logs = (AUDIT, f"{node}-kubelet", f"{node}-containerd", f"{node}-ostler")
    return moments(*(log_of(root, name).read_text(errors="replace") for name in logs))


def table(traces: Traces) -> str:
    """The hops of each kind, as the rows of a document; the first pod of a kind warms up and does not count."""
    kinds = {kind: [trace for name, trace in traces.items() if _is_of(name, kind)] for kind in TRACED}
    head = ["moment", *(f"{TITLES[kind]}: {what}" for kind in TRACED for what in ("hop", "since"))]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    columns = {kind: _hops(found) for kind, found in kinds.items()}
    for moment in Moment:
        cells = [cell for kind in TRACED for cell in columns[kind].get(moment, ("", ""))]
        if any(cells):
            lines.append([moment.value, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _is_of(name: str, kind: str) -> bool:
    prefix, _, number = name.rpartition("-")
    return prefix == kind.replace("_", "-") and number != "0"


def _hops(traces: Sequence[Mapping[Moment, float]]) -> dict[Moment, tuple[str, str]]:
    """By moment, the medians since the moment before it and since the first one, in milliseconds."""
    hops: dict[Moment, list[float]] = {}
    since: dict[Moment, list[float]] = {}
    for trace in traces:
        if Moment.ASKED not in trace:
            continue
        before = trace[Moment.ASKED]
        for moment in Moment:
            if moment in trace:
                hops.setdefault(moment, []).append(trace[moment] - before)
                since.setdefault(moment, []).append(trace[moment] - trace[Moment.ASKED])
                before = trace[moment]
    # A moment that few pods have (a second write after a conflict) is no hop of this kind.
    return {
        moment: (f"{1000 * median(hops[moment]):.1f}", f"{1000 * median(since[moment]):.1f}")
        for moment in hops
        if 2 * len(hops[moment]) > len(traces)
    }


if __name__ == "__main__":
    sys.exit(main())
