"""Counting requests by an audit log, and the promises of many agents; no time is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.results import Benchmark
from bench.scale.audit import AuditLog, busiest_second, kinds, of_user, renewed_each_minute, spread
from bench.scale.crowd import AGENT_DEVICES, PER_PROCESS, processes_for
from bench.scale.figures import CHANGES, PREFIX, SCALE_FIGURES
from bench.scale.measures import WITHIN, ScaleEffort
from bench.scale.server import RIGHTS
from deploy.generate import MANIFESTS
from sandbox import nodes


def entry(number: int, verb: str = "get", stage: str = "ResponseComplete", query: str = "", **more: Any) -> str:
    found = {
        "auditID": f"id-{number}",
        "stage": stage,
        "verb": verb,
        "requestURI": f"/apis/resource.k8s.io/v1/resourceslices?{query}",
        "requestReceivedTimestamp": f"2026-11-26T10:00:{number:02}.500000Z",
        "user": {"username": "agent"},
        "objectRef": {"resource": "resourceslices"},
        "responseStatus": {"code": 200},
        **more,
    }
    return json.dumps(found) + "\n"


def test_every_request_counts_once_and_a_watch_when_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text(entry(1) + entry(2, "watch", "ResponseStarted", "watch=1&timeoutSeconds=300"))
    log = AuditLog(path)
    (read, watch) = log.take()
    assert (read.kind, read.code, read.lasts, watch.lasts) == ("get resourceslices", 200, 0.0, 300.0)
    assert watch.at - read.at == 1.0
    with path.open("a") as file:
        file.write(entry(2, "watch") + entry(3, "watch", responseStatus={"code": 429}) + entry(4)[:20])
    (refused,) = log.take()
    assert (refused.kind, refused.code) == ("watch resourceslices", 429)
    with path.open("a") as file:
        file.write(entry(4)[20:])
    assert len(log.take()) == 1


def test_a_part_of_an_object_and_what_is_no_object_are_named(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    status = entry(1, "update", objectRef={"resource": "resourceclaims", "subresource": "status"})
    version = entry(2, objectRef={}, requestURI="/version", user={"username": "other"})
    path.write_text(status + version)
    found = AuditLog(path).take()
    assert dict(kinds(found)) == {"update resourceclaims/status": 1, "get /version": 1}
    assert [each.kind for each in of_user(found, "other")] == ["get /version"]


def test_what_the_counts_mean(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    watches = [entry(number, "watch", "ResponseStarted", f"timeoutSeconds={300 * number}") for number in (1, 2)]
    path.write_text("".join((*watches, entry(3))))
    assert renewed_each_minute(AuditLog(path).take()) == pytest.approx(0.2 + 0.1)
    assert spread([float(second) for second in range(100)]) == 90.0
    assert busiest_second([1.0, 1.9, 2.0, 5.0]) == 2
    assert busiest_second([]) == 0


def test_every_promise_of_many_agents_has_its_target() -> None:
    targets = {figure.name.removeprefix(PREFIX): figure.target(3.0) for figure in SCALE_FIGURES}
    assert {name: target for name, target in targets.items() if target is not None} == {
        **{f"{change}_requests": 6.0 for change in CHANGES},
        "idle_requests_per_node_minute": 0.6,
        "back_slices_right_s": 60.0,
        "wiped_slices_right_s": 60.0,
        "wiped_requests_per_node": 6.0,
        "claim_requests": 6.0,
    }
    names = [name for figure in SCALE_FIGURES for name in (figure.name, figure.floor_name)]
    assert {Benchmark.of(name) for name in names} == {Benchmark.SCALE}


def test_the_agents_have_the_rights_of_the_chart_and_the_devices_of_a_shipped_node() -> None:
    kinds_of = {found["kind"] for found in yaml.safe_load_all((MANIFESTS / "ostler-dra.yaml").read_text())}
    assert set(RIGHTS) <= kinds_of
    assert nodes.path(AGENT_DEVICES).exists()


@pytest.mark.parametrize(("agents", "processes"), [(1, 1), (3, 3), (20, 4), (200, 4), (201, 5), (1000, 20)])
def test_a_process_has_a_bounded_number_of_agents(agents: int, processes: int) -> None:
    assert processes_for(agents) == processes
    assert agents <= processes * PER_PROCESS


def test_every_step_is_bounded_by_the_number_of_agents() -> None:
    few, many = (ScaleEffort(nodes, 1, idle=60.0, away=10.0).within for nodes in (20, 1000))
    assert WITHIN < few < many <= 900.0
