"""The figures of shares and partitions: their targets, and the node on which they are measured; no time is measured."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from bench.results import Benchmark
from bench.sharing.figures import PREFIX, SHARING_FIGURES
from bench.sharing.stage import ALL_SHARED, GPUS, PER_GPU, PODS, RECORDED, SEVERAL, SHARED, consumption
from ostler.config.load import load_bytes
from scheduling.api.quantities import parse
from tests.cluster.rig.api import Object
from tests.driver.devices.recorded import snapshot


def test_every_promise_of_sharing_has_its_target() -> None:
    targets = {figure.name.removeprefix(PREFIX): figure.target(1.0) for figure in SHARING_FIGURES}
    assert {name: target for name, target in targets.items() if target is not None} == {
        "allocate_share_p50_s": 1.1,
        "allocate_share_p99_s": 1.1,
        "prepare_share_p50_s": 1.2,
        "prepare_share_p99_s": 1.2,
        "prepare_partition_p50_s": 1.2,
        "prepare_partition_p99_s": 1.2,
        "make_partition_s": 1.02,
        "make_first_partition_s": 1.02,
    }
    assert all(Benchmark.of(figure.name) is Benchmark.SHARING for figure in SHARING_FIGURES)


@pytest.mark.parametrize("resources", [SEVERAL, ALL_SHARED])
def test_the_rules_of_the_benchmark_select_every_gpu_of_its_node(resources: Sequence[Object]) -> None:
    document = {"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "resources": list(resources)}
    rules = load_bytes("config.yaml", json.dumps(document).encode(), {}, {}).settings.rules
    gpus = [device for device in snapshot(RECORDED).devices if device.name in GPUS]
    assert len(gpus) == len(GPUS) == 8
    assert all(any(rule.selector.matches(gpu) for rule in rules) for gpu in gpus)


def test_the_shares_of_pods_and_claims_fill_the_gpus_and_no_more() -> None:
    (rule,) = ALL_SHARED
    assert rule["name"] == SHARED
    assert len(GPUS) * PER_GPU == PODS
    consumed = consumption(PER_GPU)
    gpu = next(device for device in snapshot(RECORDED).devices if device.name in GPUS)
    memory = next(each.value for each in gpu.capacity if each.name == "memory")
    assert parse(consumed["memory"]).value() * PER_GPU <= memory
    assert int(consumed["compute"]) * PER_GPU <= 100
