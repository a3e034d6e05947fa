"""'ostler snapshot': what it writes, for whom, and how it says what it cannot do."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import yaml

from ostler.cli.main import main
from ostler.explain.files import read_files
from ostler.explain.snapshot import as_yaml
from scheduling.explain.question import Question
from scheduling.explain.state import (
    Kind,
    name_of,
)
from scheduling.explain.subject import subject_of
from tests.kube.server import StubApiServer
from tests.making.snapshots import small_state
from tests.scheduling.explain.cluster import MadeCluster, serving
from tests.scheduling.explain.objects import (
    claim,
    device_class,
    node,
    pod,
)


def run(*words: str) -> int:
    return main(["snapshot", *words])


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.yaml").write_text(as_yaml(small_state()))
    return "in.yaml"


def test_a_cluster_becomes_a_file_that_its_owner_alone_can_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = pod("train", resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}])
    with serving(MadeCluster(node("node-1"), claim("c"), user, pod("other"), device_class("gpu"))) as server:
        out = tmp_path / "out.yaml"
        assert run("-o", str(out), "--kubeconfig", str(kubeconfig(tmp_path, server))) == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    state = read_files([str(out)]).state
    assert ([name_of(body) for body in state.pods], state.server_version) == (["train"], "v1.37.0")
    assert f"{out}: 1 nodes, 1 deviceclasses, 1 resourceclaims, 1 pods\n" in capsys.readouterr().err
    head = next(iter(yaml.safe_load_all(out.read_text())))
    assert (head["kind"], head["apiVersion"]) == ("Snapshot", "ostler.dev/v1alpha1")
    assert "takenAt" in head


def kubeconfig(folder: Path, server: StubApiServer) -> Path:
    config = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": server.url}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    return folder / "kubeconfig"


def test_an_account_of_one_namespace_gets_that_one(tmp_path: Path) -> None:
    mine, others = claim("mine", namespace="team"), claim("theirs", namespace="other")
    cluster = MadeCluster(mine, others, device_class("gpu"))
    cluster.forbidden = {"/apis/resource.k8s.io/v1/resourceclaims"}
    with serving(cluster) as server:
        out = tmp_path / "out.yaml"
        assert run("-o", str(out), "-n", "team", "--kubeconfig", str(kubeconfig(tmp_path, server))) == 0
    assert [name_of(body) for body in read_files([str(out)]).state.claims] == ["mine"]


def test_what_is_not_in_it_is_told(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from", source) == 0
    out, err = capsys.readouterr()
    assert "kind: Snapshot" in out
    assert "not in it: only some\nnot in it: rules are forbidden; ask\n" in err


def test_a_file_that_is_there_is_replaced_only_by_force(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from", source, "-o", source) == 1
    assert "in.yaml already exists; give another name, or --force to replace it" in capsys.readouterr().err
    assert run("--from", source, "-o", source, "--force", "--anonymise") == 0
    assert "train" not in Path(source).read_text()
    assert not list(Path().glob(".*.tmp"))


def test_a_snapshot_as_json_is_one_object(source: str) -> None:
    assert run("--from", source, "-o", "out.json") == 0
    body = json.loads(Path("out.json").read_text())
    assert (body["kind"], len(body["items"])) == ("Snapshot", 7)


def test_which_name_became_which_can_be_kept(source: str) -> None:
    assert run("--from", source, "-o", "out.yaml", "--anonymise-nodes", "--names", "names.json") == 0
    names = json.loads(Path("names.json").read_text())
    assert (names["pod"], names["node"]) == ({"train": "pod-01"}, {"node-1": "node-01"})
    assert stat.S_IMODE(Path("names.json").stat().st_mode) == 0o600
    again = subject_of(read_files(["out.yaml"]).state, Question(Kind.POD, names["namespace"]["team"], "pod-01"))
    assert len(again.allocated) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "in.yaml", "--names", "x"], "--names needs --anonymise: without it no name is replaced"),
        (
            ["--from", "none.yaml"],
            "none.yaml: cannot be read (No such file or directory); give a file or folder that exists",
        ),
        (["--from", "in.yaml", "-o", "."], ". is a folder; give the name of a file"),
        (["--from", "in.yaml", "-o", "none/x"], "none/x cannot be written: No such file or directory"),
        (["--kubeconfig", "none"], "none: cannot be read (No such file or directory)"),
    ],
)
def test_what_cannot_be_done_is_said(
    source: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 1
    assert message in capsys.readouterr().err


def test_a_server_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StubApiServer() as server:
        path = kubeconfig(tmp_path, server)
    assert run("--kubeconfig", str(path)) == 1
    assert "cannot be reached" in capsys.readouterr().err
