"""The figures of the DRA door: names, targets, and what is counted; no time is measured here."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cluster.figures import CLUSTER_FIGURES, KINDS, cluster_figures
from bench.dra.figures import DRA_FIGURES, FLOORS, NAMES
from bench.dra.kubelet import status
from bench.dra.library import DEVICES, PER_SLICE, resources
from bench.dra.server import Shown, WatchedSlices
from bench.figures import FLOOR, checked
from bench.recording import gpu_uuid, many_gpus
from bench.results import HEADINGS, rows
from node.inventory.recordings.source import read


def measured(**others: float) -> dict[str, float]:
    return {**dict.fromkeys(NAMES, 1.0), **others}


def row(name: str, figures: dict[str, float]) -> dict[str, str]:
    return next(dict(zip(HEADINGS, line, strict=True)) for line in rows(figures, DRA_FIGURES) if line[0] == name)


def test_every_promised_figure_of_the_dra_door_has_its_target() -> None:
    targets = {figure.name: figure.target(1.0) for figure in DRA_FIGURES}
    assert targets == {
        "start_to_dra_registration_s": 0.3,
        "start_to_first_slice_s": 0.6,
        "deleted_slice_repair_s": 1.0,
        "prepare_p50_s": 1.5,
        "prepare_p99_s": 1.5,
        "unprepare_p50_s": None,
        "unprepare_p99_s": 1.0,
        "prepare_200_parallel_s": None,
        "prepare_199_beside_one_waiting_s": None,
        "rss_both_doors_bytes": 60e6,
        "slices_10000_devices_converge_s": 3.0,
        "slices_10000_devices_writes": 79,
        "slices_one_change_s": 0.3,
        "slices_one_change_writes": 1,
    }


def test_releasing_at_its_worst_stands_beside_preparing_of_the_floor() -> None:
    cells = row("unprepare_p99_s", measured(unprepare_p99_s=0.003, floor_prepare_p50_s=0.002))
    assert [cells[heading] for heading in ("floor", "target", "reached")] == ["2.0 ms", "<= 2.0 ms", "no"]


def test_one_write_too_many_misses_the_target() -> None:
    assert row("slices_10000_devices_writes", measured(slices_10000_devices_writes=79))["reached"] == "yes"
    assert row("slices_10000_devices_writes", measured(slices_10000_devices_writes=80))["reached"] == "no"


def test_a_missing_figure_of_the_dra_door_is_named() -> None:
    figures = measured()
    del figures["deleted_slice_repair_s"]
    with pytest.raises(ValueError, match="figures are missing: deleted_slice_repair_s"):
        checked(figures, DRA_FIGURES)


def test_the_names_are_those_of_the_agent_and_those_of_the_floor() -> None:
    assert {figure.name for figure in DRA_FIGURES} | {FLOOR + name for name in FLOORS} == NAMES


def test_ten_thousand_devices_are_as_many_slices_as_the_reference_writes() -> None:
    (pool,) = resources(0).pools.values()
    target = next(figure.at_most for figure in DRA_FIGURES if figure.name == "slices_10000_devices_writes")
    assert sum(len(each.devices) for each in pool.slices) == DEVICES
    assert [len(pool.slices), max(len(each.devices) for each in pool.slices)] == [target, PER_SLICE]


def test_the_change_that_is_measured_is_one_of_one_device() -> None:
    before, after = (
        [device for each in resources(number).pools["pool"].slices for device in each.devices] for number in (0, 1)
    )
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


def test_slices_are_counted_as_a_watch_tells_of_them() -> None:
    def told(name: str, *devices: str) -> dict[str, object]:
        return {"metadata": {"name": name}, "spec": {"devices": [{"name": device} for device in devices]}}

    slices = WatchedSlices()
    assert slices.see(1.0, "ADDED", told("a", "gpu-1", "gpu-0")) == Shown(1.0, 1, 2, added=1)
    assert slices.see(2.0, "ADDED", told("b", "gpu-2")) == Shown(2.0, 2, 3, added=2)
    assert slices.see(3.0, "MODIFIED", told("b")) == Shown(3.0, 2, 2, added=2, modified=1)
    assert slices.see(4.0, "BOOKMARK", {"metadata": {}}) is None
    assert slices.devices == ("gpu-0", "gpu-1")
    assert slices.see(5.0, "DELETED", told("a")) == Shown(5.0, 1, 0, added=2, modified=1, deleted=1)


def test_a_claim_is_allocated_and_reserved_as_a_scheduler_does_it() -> None:
    made = status("claim-1", "gpu-7")
    assert made["allocation"]["devices"]["results"] == [
        {"request": "gpu", "driver": "ostler.dev", "pool": "node-1", "device": "gpu-7"}
    ]
    assert [(user["resource"], user["name"]) for user in made["reservedFor"]] == [("pods", "pod-of-claim-1")]


def test_recorded_gpus_have_names_and_files_of_their_own(tmp_path: Path) -> None:
    facts = read(many_gpus(tmp_path / "gpus.yaml", 300)).facts
    assert facts.nvml is not None
    assert facts.sysfs is not None
    gpus = facts.nvml.gpus
    assert [gpu.uuid for gpu in gpus] == [gpu_uuid(index) for index in range(300)]
    assert len({gpu.bus_id for gpu in gpus}) == 300
    assert {f"/dev/nvidia{gpu.minor}" for gpu in gpus} < {file.path for file in facts.sysfs.device_files}


def test_pods_with_claims_stand_beside_those_of_the_go_driver() -> None:
    singles = {kind: [0.2] * 50 for kind in KINDS} | {"claim": [0.205] * 49 + [0.3], "floor": [0.196] * 50}
    figures = cluster_figures(singles, {kind: [7.0] for kind in KINDS} | {"claim": [8.0, 9.5, 8.5]})
    shown = {line[0]: line for line in rows(figures, CLUSTER_FIGURES)}
    assert shown["cluster_pod_claim_p50_s"][1:] == ("205.0 ms", "200.0 ms", "1.02", "<= 204.0 ms", "no")
    assert shown["cluster_pod_claim_p99_s"][-2:] == ("<= 210.0 ms", "no")
    assert shown["cluster_pod_claim_last_of_50_s"][1:] == ("8500.0 ms", "7000.0 ms", "1.21", "<= 7350.0 ms", "no")
    assert shown["cluster_pod_peer_claim_p50_s"][1:] == ("200.0 ms", "196.0 ms", "1.02", "", "")
    assert shown["cluster_claim_over_plugin_s"][1:] == ("9.0 ms", "", "", "<= 10.0 ms", "yes")
