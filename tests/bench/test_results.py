"""The results' file, which the benchmarks share."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from pathlib import Path

import pytest

from bench.adopting import PROMISED
from bench.dra.figures import NAMES
from bench.figures import FIGURES, FLOOR
from bench.results import Benchmark, write


@pytest.mark.parametrize(
    ("name", "benchmark"),
    [
        ("allocate_p50_s", Benchmark.AGENT),
        ("floor_allocate_p50_s", Benchmark.AGENT),
        ("prepare_p50_s", Benchmark.DRA),
        ("floor_prepare_p50_s", Benchmark.DRA),
        ("cluster_pod_plain_p50_s", Benchmark.CLUSTER),
        ("health_to_list_s", Benchmark.HEALTH),
        ("doors_storm_doubles", Benchmark.DOORS),
        ("sharing_allocate_whole_p50_s", Benchmark.SHARING),
        ("scale_nodes", Benchmark.SCALE),
        ("floor_scale_publish_requests", Benchmark.SCALE),
    ],
)
def test_a_figure_belongs_to_the_benchmark_that_measures_it(name: str, benchmark: Benchmark) -> None:
    assert Benchmark.of(name) is benchmark


def test_no_figure_is_of_two_benchmarks() -> None:
    names = [figure.name for figures in PROMISED.values() for figure in figures]
    assert len(set(names)) == len(names)
    assert not {FLOOR + figure.name for figure in FIGURES} & NAMES


@pytest.mark.parametrize("benchmark", Benchmark)
def test_a_benchmark_replaces_its_own_figures_and_leaves_those_of_the_others(
    tmp_path: Path, benchmark: Benchmark
) -> None:
    path = tmp_path / "results.json"
    own = {
        Benchmark.AGENT: "takeover_s",
        Benchmark.DRA: "prepare_p50_s",
        Benchmark.CLUSTER: "cluster_pod_plain_p50_s",
        Benchmark.HEALTH: "health_to_list_s",
        Benchmark.DOORS: "doors_storm_doubles",
        Benchmark.SHARING: "sharing_rss_bytes",
        Benchmark.SCALE: "scale_nodes",
    }
    # A figure that is not measured any more goes with the next run of its benchmark.
    past = {
        Benchmark.AGENT: "gone_s",
        Benchmark.DRA: "floor_prepare_p50_s",
        Benchmark.CLUSTER: "cluster_gone_s",
        Benchmark.HEALTH: "health_gone_s",
        Benchmark.DOORS: "doors_gone_s",
        Benchmark.SHARING: "sharing_allocate_whole_p50_s",
        Benchmark.SCALE: "floor_scale_wipe_requests",
    }
    path.write_text(json.dumps(dict.fromkeys((*own.values(), *past.values()), 1)))
    write(path, {own[benchmark]: 2}, benchmark)
    left = {name: 1 for each in Benchmark if each is not benchmark for name in (own[each], past[each])}
    assert json.loads(path.read_text()) == {**left, own[benchmark]: 2}


def test_the_first_figures_make_the_file(tmp_path: Path) -> None:
    write(tmp_path / "results.json", {"prepare_p50_s": 0.25}, Benchmark.DRA)
    assert (tmp_path / "results.json").read_text() == '{\n  "prepare_p50_s": 0.25\n}\n'


def test_benchmarks_side_by_side_write_their_figures_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    # As the other one does while it writes.
    lock = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    other = threading.Thread(target=write, args=(path, {"prepare_p50_s": 0.25}, Benchmark.DRA))
    other.start()
    other.join(0.2)
    assert not path.exists()
    path.write_text(json.dumps({"allocate_p50_s": 0.5}))
    os.close(lock)
    other.join()
    assert json.loads(path.read_text()) == {"allocate_p50_s": 0.5, "prepare_p50_s": 0.25}
