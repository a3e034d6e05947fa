"""``ostler extender`` as a process: what it refuses to start with, its standby, its pages, and TLS from end to end."""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ostler.cli.main import main
from ostler.extender.lease import LeaseName, LeaseTiming
from ostler.extender.process import ExtenderFailed, address_of, api_access, restart_keys
from scheduling.cells.configuration import ExtenderSettings
from tests.kube.authority import Authority
from tests.making.extender import cells, extender
from tests.making.extender_cluster import ClusterApi, pod
from tests.ostler.metrics.scraping import families
from tests.waiting import until

LEASE = LeaseName("default", "ostler-extender")
FAST = LeaseTiming(retry=0.05)


@pytest.fixture(autouse=True)
def restored_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command sets up the log of its process. Here that is a worker, whose later tests need an open stream."""
    root = logging.getLogger("ostler")
    for name in ("logThreads", "logProcesses", "logMultiprocessing", "_srcfile"):
        monkeypatch.setattr(logging, name, getattr(logging, name))
    before = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], level, root.propagate = before
    root.setLevel(level)


def config(folder: Path, **keys: Any) -> Path:
    path = folder / "cells.yaml"
    path.write_text(json.dumps({"kubeApiServerAddress": "http://127.0.0.1:1", **cells(1), **keys}))
    return path


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            {"webServerAddress": ":9096"},
            (
                "webServerAddress: :9096 can be reached from other machines, where anybody could place and evict pods; "
                "write 127.0.0.1:9096, or give --tls-cert, --tls-key and --tls-client-ca"
            ),
        ),
        ({"webServerAddress": "10.0.0.1:9096"}, "webServerAddress: 10.0.0.1:9096 can be reached from other machines"),
        ({"webServerAddress": "9096"}, "webServerAddress: '9096' is not host:port, such as 0.0.0.0:9410"),
        (
            {"kubeConfigFilePath": "/nonexistent/kubeconfig", "webServerAddress": "127.0.0.1:0"},
            "/nonexistent/kubeconfig",
        ),
        ({"virtualClusters": {"A": {"virtualCels": []}}}, "virtualCels"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_exit_code_3_and_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: dict[str, Any], text: str
) -> None:
    assert main(["extender", "--config", str(config(tmp_path, **keys))]) == 3
    assert text in capsys.readouterr().err


def test_files_that_cannot_be_read_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, binary = tmp_path / "missing.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff")
    assert main(["extender", "--config", str(missing)]) == 3
    expected = f"--config: {missing} cannot be read (No such file or directory); give the cells' configuration"
    assert expected in capsys.readouterr().err
    assert main(["extender", "--config", str(binary)]) == 3
    assert f"--config: {binary} is not UTF-8 (byte 0); write it as UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--tls-cert", "x"], "TLS needs --tls-key and --tls-client-ca as well"),
        (["--tls-client-name", "x"], "--tls-client-name needs --tls-cert, --tls-key and --tls-client-ca"),
        (["--lease", "name"], "--lease: 'name' is not NAMESPACE/NAME, auto or off"),
    ],
)
def test_options_that_do_not_go_together_are_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], text: str
) -> None:
    assert main(["extender", "--config", str(config(tmp_path)), *options]) == 2
    assert text in capsys.readouterr().err


def test_the_api_servers_address_wins_over_the_kubeconfigs(tmp_path: Path, api: ClusterApi) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://elsewhere:6443"}}],
    }
    kubeconfig.write_text(json.dumps(document))
    for variable in ({"KUBECONFIG": str(kubeconfig)}, {"HOME": str(tmp_path)}):
        (tmp_path / ".kube").mkdir(exist_ok=True)
        (tmp_path / ".kube/config").write_text(kubeconfig.read_text())
        assert api_access(ExtenderSettings(), variable).server == "https://elsewhere:6443"
        given = ExtenderSettings(kube_api_server_address=f"{api.url}/")
        assert api_access(given, variable).server == api.url
    assert api_access(ExtenderSettings(), {"KUBE_APISERVER_ADDRESS": api.url}).server == api.url


def test_without_an_address_only_this_machine_is_served_unless_there_is_tls() -> None:
    assert address_of(ExtenderSettings(), has_tls=False) == "127.0.0.1:9096"
    assert address_of(ExtenderSettings(), has_tls=True) == ":9096"
    assert address_of(ExtenderSettings(web_server_address="10.0.0.1:1"), has_tls=True) == "10.0.0.1:1"


def test_keys_that_need_a_restart_are_named() -> None:
    old = ExtenderSettings(web_server_address="127.0.0.1:1")
    new = ExtenderSettings(web_server_address="127.0.0.1:2", force_pod_bind_threshold=9)
    assert restart_keys(old, new) == ("webServerAddress",)


def test_an_address_that_is_taken_ends_the_extender(api: ClusterApi, tmp_path: Path) -> None:
    with extender(tmp_path, api, cells(2)) as first:
        address = f"127.0.0.1:{first.port}"
        path = config(tmp_path, webServerAddress=address, kubeApiServerAddress=api.url)
        from ostler.extender.process import ExtenderOptions, ExtenderProcess
        from scheduling.cells.scheduler import CellScheduler

        second = ExtenderProcess(ExtenderOptions(path), {}, CellScheduler)
        with pytest.raises(ExtenderFailed, match=re.escape(f"webServerAddress: cannot listen at {address} (Address")):
            second.run()


def test_a_standby_says_so_and_takes_over_with_the_running_pods(api: ClusterApi, tmp_path: Path) -> None:
    with (
        extender(tmp_path, api, cells(2), lease=LEASE, timing=FAST, identity="first") as first,
        extender(tmp_path, api, cells(2), ready=False, lease=LEASE, timing=FAST, identity="second") as second,
    ):
        placed = pod("p")
        first.place(placed, "n0", "n1")
        standby = "this replica is a standby: the lease default/ostler-extender belongs to first, which answers instead"
        until(lambda: standby in second.process.why_not(), "the second knows the first")
        answer = second.filter(placed, "n0")
        assert answer["Error"] == f"Code: 503, Message: hivedscheduler: Platform Error: {standby}"
        assert standby in second.bind(placed, "n0")
        assert second.preempt(placed, "n0") == (503, f"hivedscheduler: Platform Error: {standby}")
        assert second.ask("GET", "/v1/inspect/affinitygroups/")[0] == 503
        first.process.stop()
        until(lambda: not second.process.why_not(), "the second has taken over")
        assert second.groups()["default/p"]["physicalPlacement"] == {"n0": list(range(8))}
        assert second.place(pod("q"), "n0", "n1") == "n1"


def test_a_replica_whose_lease_is_taken_ends(api: ClusterApi, tmp_path: Path) -> None:
    faults: list[BaseException] = []
    with extender(tmp_path, api, cells(2), lease=LEASE, timing=FAST, identity="first", faults=faults):
        lease = api.get("Lease", LEASE.name, LEASE.namespace)
        assert lease is not None
        until(lambda: _taken(api), "another holder is written")
        until(lambda: faults, "it ends")
        expected = (
            "the lease default/ostler-extender is lost to thief (another replica took it); start again as a standby"
        )
        assert str(faults[0]) == expected


def _taken(api: ClusterApi) -> bool:
    lease = api.get("Lease", LEASE.name, LEASE.namespace)
    assert lease is not None
    lease["spec"]["holderIdentity"] = "thief"
    api.put(lease)
    return True


def test_pages_for_probes_and_scrapes(api: ClusterApi, tmp_path: Path) -> None:
    with extender(tmp_path, api, cells(2), http="127.0.0.1:0") as running:
        running.place(pod("p"), "n0", "n1")
        assert page(running.process.pages_port, "/livez") == (200, "ok\n")
        assert page(running.process.pages_port, "/readyz") == (200, "ready\n")
        found = families(page(running.process.pages_port, "/metrics")[1])
        samples = {
            (each.name, *sorted(each.labels.values())): each.value
            for family in found.values()
            for each in family.samples
        }
        assert samples["ostler_extender_active",] == 1
        assert samples["ostler_extender_pods", "bound"] == 1
        assert samples["ostler_extender_requests_total", "filter", "ok"] == 1
        assert samples["ostler_extender_pods_placed_total",] == 1


def page(port: int, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
        client.request("GET", path)
        answer = client.getresponse()
        return answer.status, answer.read().decode()


def test_a_process_serves_its_scheduler_over_tls_and_ends_on_a_signal(api: ClusterApi, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    server, client = authority.server(), authority.client("system:kube-scheduler")
    path = config(tmp_path, kubeApiServerAddress=api.url, webServerAddress="0.0.0.0:0", **cells(2))
    files = ["--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca", authority.certificate]
    command = [sys.executable, "-m", "ostler", "extender", "--config", path, *files, "--log-format", "json"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        lines = (json.loads(line) for line in process.stderr)
        try:
            port = next(line["port"] for line in lines if line["msg"] == "answering schedulers")
            context = ssl.create_default_context(cafile=str(authority.certificate))
            context.load_cert_chain(client.certificate, client.key)
            with closing(http.client.HTTPSConnection("127.0.0.1", port, context=context)) as connection:
                connection.request("GET", "/v1/inspect/affinitygroups/")
                answer = connection.getresponse()
                assert (answer.status, json.loads(answer.read())) == (200, {"items": None})
        finally:
            process.send_signal(signal.SIGTERM)
            assert [line["msg"] for line in lines if line["level"] == "error"] == []
            assert process.wait(60) == 0
