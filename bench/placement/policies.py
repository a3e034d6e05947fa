"""Ways to choose GPUs of an 8-GPU node, ours among them. A policy gets the free GPUs' numbers, sorted, and a size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from random import Random

from bench.placement.nodes import preference_of, switched
from node.topology.model import Topology
from node.topology.score import Scores, pair_scores

GPUS = 8
PER_SOCKET = 4
Policy = Callable[[Sequence[int], int, Random], Sequence[int]]


def no_preference(free: Sequence[int], size: int, random: Random) -> Sequence[int]:
    """The kubelet alone: it takes members of a Go set, whose order is random."""
    return random.sample(free, size)


def lowest_index(free: Sequence[int], size: int, _random: Random) -> Sequence[int]:
    """The first free ones."""
    return free[:size]


def link_aware(topology: Topology) -> Policy:
    """The best sum of pair scores for several GPUs, as peers do; a single one is spread to the emptier socket."""
    scores = pair_scores(topology.places)

    def policy(free: Sequence[int], size: int, random: Random) -> Sequence[int]:
        if size > 1:
            return max(combinations(free, size), key=lambda chosen: _score(scores, chosen))
        sockets = [gpu // PER_SOCKET for gpu in free]
        most = max(map(sockets.count, sockets))
        return [random.choice([gpu for gpu in free if sockets.count(gpu // PER_SOCKET) == most])]

    return policy


def ostler(topology: Topology) -> Policy:
    """What the agent answers, asked as the kubelet asks: in the random order of a set."""
    preference = preference_of(topology)
    numbers = {place.name: number for number, place in enumerate(topology.places)}
    names = {number: name for name, number in numbers.items()}

    def policy(free: Sequence[int], size: int, random: Random) -> Sequence[int]:
        available = [names[gpu] for gpu in random.sample(free, len(free))]
        return [numbers[name] for name in preference.prefer(available, [], size)]

    return policy


def policies() -> dict[str, Policy]:
    """All of them by name, on an eight-GPU node with cells of 1, 2, 4 and 8."""
    topology = switched(GPUS)
    return {
        "no preference (random)": no_preference,
        "lowest index": lowest_index,
        "link-aware, singles spread": link_aware(topology),
        "ostler": ostler(topology),
    }


def _score(scores: Scores, chosen: Sequence[int]) -> int:
    return sum(scores[a][b] for a, b in combinations(chosen, 2))
