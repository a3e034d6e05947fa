"""``--cluster``: GPUs, nodes and pods of the cluster that kubectl would use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ostler.cli.main import main
from sandbox.apiserver.server import ApiServer
from tests.making.cells import CONFIGURATION, gpu, node_named, pod, slice_of

Command = Callable[..., tuple[str, str]]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """Two nodes with four GPUs each, the second one cordoned; one pod has a pair, another one is over."""
    with ApiServer() as running:
        for name, spec in (("node-1", {}), ("node-2", {"unschedulable": True})):
            running.store.create("nodes", {**node_named(name), "spec": spec})
            running.store.create("resourceslices", slice_of(name, [gpu(each) for each in range(4)]))
        for name, indices in (("a", (0, 1)), ("over", (2, 3))):
            running.store.create("pods", pod(name, "node-1", *indices))
        status = {"status": {"phase": "Succeeded"}}
        running.store.patch("pods", "over", status, namespace="team", part="status")
        yield running


@pytest.fixture
def ostler(server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    (file := tmp_path / "cells.yaml").write_text(CONFIGURATION)
    config = server.kubeconfig(tmp_path / "kubeconfig")

    def run(command: str, *words: str, code: int = 0) -> tuple[str, str]:
        given = [] if command == "discover" else [str(file), "--cluster"]
        assert main(["cells", command, *given, *words, "--kubeconfig", str(config)]) == code
        printed = capsys.readouterr()
        return printed.out, printed.err

    return run


def test_every_command_reads_the_cluster(ostler: Command) -> None:
    assert "cellAddress: node-2\n" in ostler("discover")[0]
    assert ostler("check")[0].endswith("\nthe cluster has these cells\n")
    assert "  node-1  [aa ..]  2 of 4 free\n" in ostler("view")[0]
    assert " waits: insufficient capacity" in ostler("plan", "--vc", "A", "--gpus", "2", code=1)[0]
    cordoned = ostler("plan", "--vc", "B", "--gpus", "4", "--pinned", "mine", code=1)[0]
    assert "bad node node-2" in cordoned


def test_a_cluster_that_refuses_is_named(ostler: Command, server: ApiServer) -> None:
    server.faults.add("list", status=403, resource="pods", count=-1, message="pods is forbidden")
    text, err = ostler("view", code=2)
    assert text == ""
    assert "pods is forbidden" in err
