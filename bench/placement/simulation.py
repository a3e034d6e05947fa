"""Pods that come and go on one node of eight GPUs, and the share of multi-GPU pods that do not get an island.

A run is 200 steps on an empty node. In every step the next pod is drawn: 1, 2 or 4 GPUs at 60:30:10. A coin decides
whether it is admitted or, instead, a random running pod ends; where the pod does not fit, a running one ends in any
case. An island is an aligned block of 2 or 4 GPUs. Runs are seeded by their numbers, and policies that draw have a
source of their own, so that all of them see the same pods.

With peers' policies this gives the shares that others have measured on such a node: 88 % for the kubelet alone, 48 %
for the lowest index, 16 % where links are looked at for several GPUs only. What is left with ours are mostly holes that
only moving a running pod could close.
"""

from __future__ import annotations

from random import Random

from bench.placement.policies import GPUS, Policy

RUNS = 300
STEPS = 200
SIZES = (1, 2, 4)
WEIGHTS = (60, 30, 10)


def unaligned_ratio(policy: Policy, runs: int = RUNS) -> float:
    """Unaligned multi-GPU pods by all multi-GPU pods."""
    unaligned = total = 0
    for seed in range(runs):
        bad, admitted = _run(policy, Random(seed), Random(RUNS + seed))
        unaligned += bad
        total += admitted
    return unaligned / total


def _run(policy: Policy, random: Random, own: Random) -> tuple[int, int]:
    """Unaligned ones and all of the multi-GPU pods of one run."""
    free, pods = list(range(GPUS)), list[list[int]]()
    unaligned = total = 0
    for _ in range(STEPS):
        size = random.choices(SIZES, WEIGHTS)[0]
        if pods and (size > len(free) or random.random() < 0.5):
            free = sorted(free + pods.pop(random.randrange(len(pods))))
            continue
        gpus = sorted(policy(free, size, own))
        free = [gpu for gpu in free if gpu not in gpus]
        pods.append(gpus)
        if size > 1:
            total += 1
            unaligned += gpus[0] % size > 0 or gpus[-1] - gpus[0] >= size
    return unaligned, total
