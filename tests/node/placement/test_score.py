"""Link scores: NVIDIA's vectors, NVSwitch, and tables that are nothing but sums over pairs."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.topology.model import Topology
from node.topology.packing import LARGEST_TABLE, pair_score, pair_scores, score_table
from tests.making.places import gpu, nodes


@pytest.mark.parametrize(
    ("path", "numa", "expected"),
    [
        (("pci0000:00", "up", "switch", "port-1"), 0, 50),
        (("pci0000:00", "up", "other", "port-1"), 0, 40),
        (("pci0000:00", "elsewhere", "port-1"), 0, 30),
        (("pci0001:00", "port-1"), 0, 20),
        (("pci0001:00", "port-1"), 1, 10),
    ],
)
def test_pcie_gives_ten_to_fifty(path: tuple[str, ...], numa: int, expected: int) -> None:
    first = gpu(0, ("pci0000:00", "up", "switch", "port-0"), 0)
    assert pair_score(first, gpu(1, path, numa)) == expected


def test_every_link_gives_a_hundred() -> None:
    assert pair_score(gpu(0, numa=0, links={1: 4}), gpu(1, numa=0, links={0: 4})) == 420


def test_links_to_switches_count_as_many_as_the_gpu_with_fewer_has() -> None:
    assert pair_score(gpu(0, up=18), gpu(1, up=17)) == 1720
    assert pair_score(gpu(0, up=18), gpu(1)) == 20


def test_a_gpu_and_itself_score_nothing() -> None:
    assert pair_score(gpu(0, up=18), gpu(0, up=18)) == 0


@given(nodes(), st.integers(0, 3))
def test_a_table_has_the_sum_over_all_pairs_of_every_set(topology: Topology, first: int) -> None:
    scores = pair_scores(topology.places)
    table = score_table(scores, first)
    count = len(scores)
    assert (table.first, table.count, len(table.sums)) == (first, count, 2**count)
    for mask in range(2**count):
        members = [number for number in range(count) if mask >> number & 1]
        assert table.sums[mask] == sum(scores[a][b] for a, b in combinations(members, 2))


def test_a_table_for_more_gpus_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a score table holds 16 GPUs, not 17$"):
        score_table(pair_scores([gpu(number) for number in range(LARGEST_TABLE + 1)]))
