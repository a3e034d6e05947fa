"""The figures of placement, and a table of all policies."""

from __future__ import annotations

from bench.placement.latency import REQUESTS, decision_p99
from bench.placement.policies import policies
from bench.placement.simulation import RUNS, unaligned_ratio


def figures(*, quick: bool = False) -> dict[str, float]:
    """``placement_unaligned_ratio`` (always the full simulation: it is seeded, some seconds) and decision times."""
    requests = REQUESTS // 10 if quick else REQUESTS
    return {
        "placement_unaligned_ratio": unaligned_ratio(policies()["ostler"]),
        "preferred_8_p99_s": decision_p99(8, requests),
        "preferred_16_p99_s": decision_p99(16, requests),
    }


def report(runs: int = RUNS, requests: int = REQUESTS) -> str:
    """What ``python -m bench.placement`` prints."""
    lines = ["multi-GPU pods that get no island, on a node of 8 GPUs:"]
    lines += [f"  {name:<28}{unaligned_ratio(policy, runs):7.1%}" for name, policy in policies().items()]
    lines.append("decision, 99th percentile:")
    lines += [f"  {f'{gpus} GPUs':<28}{decision_p99(gpus, requests) * 1e3:7.3f} ms" for gpus in (8, 16)]
    return "\n".join(lines)
