"""``ostler explain`` as it is typed: what is asked, from where, in which form, and what is wrong with it."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ostler.cli.main import main
from ostler.cli.progress import Progress
from tests.kube.server import StubApiServer
from tests.making.clusters import (
    GPU,
    GPU_CLASS,
    MODEL,
    claim,
    device,
    gpus,
    holder,
    node,
    pod,
    request,
    resource_slice,
    write,
)
from tests.making.explain_schema import form
from tests.scheduling.explain.cases import CaseAnswers
from tests.scheduling.explain.cluster import MadeCluster, serving

A, B = node("node-a"), node("node-b")
FREE = resource_slice("node-a", gpus(2))
TAKEN = resource_slice("node-b", gpus(1))
CLUSTER = (A, B, GPU_CLASS, FREE, TAKEN, holder("node-b", "gpu-0"))


def test_json_is_of_the_documented_form(answers: CaseAnswers) -> None:
    made = json.loads(answers(*CLUSTER, claim(request()), words=["-o", "json"]))
    jsonschema.validate(made, form())
    assert (made["title"], made["fits"], made["fitting"], made["nodes"]) == ("claim team/train", True, 1, 2)
    assert made["groups"][0]["placements"][0] == {
        "claim": "team/train",
        "request": "gpu",
        "driver": GPU,
        "pool": "node-a",
        "device": "gpu-0",
        "admin": False,
        "shared": False,
        "network": False,
        "consumed": [],
        "conditions": [],
    }
    assert made["groups"][1]["requests"][0]["obstacles"][0]["holders"] == [
        {"claim": "team/other", "pods": ["team/busy"]}
    ]
    free = {"change": "free", "what": "", "count": 0, "claim": "", "request": "", "index": None}
    assert made["groups"][1]["remedies"] == [free]


def test_a_manifest_is_thought_of_as_applied(tmp_path: Path, capsys: Any) -> None:
    base = write(tmp_path, *CLUSTER)
    manifest = tmp_path / "claim.yaml"
    manifest.write_text(yaml.safe_dump(claim(request(count=2))))
    assert main(["explain", "-f", str(manifest), "--from", base]) == 0
    assert capsys.readouterr().out.startswith("claim team/train fits on 1 of 2 nodes\n")


def workload(kind: str, name: str, count: int) -> dict[str, Any]:
    version = "batch/v1" if kind == "Job" else "apps/v1"
    metadata = {"name": name, "namespace": "team"}
    spec = {"replicas": count, "template": {"spec": pod()["spec"]}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def test_a_manifest_with_several_workloads_is_explained_one_by_one(tmp_path: Path, capsys: Any) -> None:
    base = write(tmp_path, *CLUSTER)
    manifest = tmp_path / "all.yaml"
    big = {**claim(request(count=2)), "metadata": {"name": "big", "namespace": "team"}}
    other = pod()
    other["metadata"]["name"] = "late"
    other["spec"]["resourceClaims"][0]["resourceClaimName"] = "big"
    bodies = [workload("Deployment", "web", 3), other, claim(request()), big]
    manifest.write_text(yaml.safe_dump_all(bodies))
    assert main(["explain", "-f", str(manifest), "--from", base, "--node", "node-b"]) == 1
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith("pod ")] == [
        "pod team/web (claim team/train) does not fit on node-b",
        "pod team/late (claim team/big) does not fit on node-b",
    ]
    assert "Deployment web: asked for 1 of its 3 pods; each of them asks for the same" in printed
    assert "each of the 2 is judged alone, as if the others took no device" in printed
    assert main(["explain", "-f", str(manifest), "--from", base, "-o", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    titles = ["pod team/web (claim team/train)", "pod team/late (claim team/big)"]
    assert [(each["title"], each["fits"]) for each in made] == [(title, True) for title in titles]
    for each in made:
        jsonschema.validate(each, form())


def test_a_workload_of_a_file_is_asked_about_by_its_kind(tmp_path: Path, capsys: Any) -> None:
    base = write(tmp_path, *CLUSTER, claim(request()))
    manifest = tmp_path / "web.yaml"
    manifest.write_text(yaml.safe_dump(workload("Deployment", "web", 1)))
    assert main(["explain", "deployment/web", "-n", "team", "-f", str(manifest), "--from", base]) == 0
    assert capsys.readouterr().out.startswith("Deployment team/web (claim team/train) fits on 1 of 2 nodes\n")


def test_an_attribute_that_is_read_as_optional_is_told_as_one(answers: CaseAnswers) -> None:
    wanted = f'device.attributes["{GPU}"].?model.orValue("") == "H300"'
    printed = answers(*CLUSTER, claim(request("gpu", GPU, 1, wanted)), words=["--node", "node-a"])
    assert "is false: attribute model (optional) is " in printed
    assert "?model is" not in printed


def test_one_node_is_looked_at_alone(answers: CaseAnswers) -> None:
    printed = answers(*CLUSTER, claim(request()), words=["--node", "node-b"])
    assert printed.startswith("claim team/train does not fit on node-b\n")
    assert answers.code == 1


def test_all_nodes_are_named_on_demand(answers: CaseAnswers) -> None:
    several = [node(f"node-{i}") for i in range(6)]
    printed = answers(*several, GPU_CLASS, claim(request()), words=["--all-nodes"])
    assert "6 nodes (node-0, node-1, node-2, node-3, node-4, node-5)" in printed


def test_a_pod_is_explained_with_its_own_name(answers: CaseAnswers) -> None:
    printed = answers(*CLUSTER, claim(request()), pod(), ask="train-0")
    assert printed.startswith("pod team/train-0 (claim team/train) fits on 1 of 2 nodes\n")


def test_colours_are_for_terminals_unless_they_are_asked_for(answers: CaseAnswers) -> None:
    assert "\x1b[" not in answers(*CLUSTER, claim(request()))
    assert "\x1b[32m" in answers(*CLUSTER, claim(request()), words=["--color", "always"])


def on_a_terminal(path: str, **environment: str) -> str:
    """What the command writes where standard output is a terminal."""
    main_end, command_end = pty.openpty()
    command = [sys.executable, "-m", "ostler", "explain", "claim/train", "-n", "team", "--from", path]
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    with subprocess.Popen(command, stdout=command_end, env={**kept, "TERM": "xterm", **environment}) as process:
        os.close(command_end)
        found = b""
        while True:
            try:
                part = os.read(main_end, 4096)
            except OSError:  # How a terminal says that its other end is closed.
                break
            if not part:
                break
            found += part
        assert process.wait(30) == 0
    os.close(main_end)
    return found.decode()


def test_a_terminal_gets_colours_and_its_own_width(tmp_path: Path) -> None:
    path = write(tmp_path, *CLUSTER, claim(request()))
    assert "\x1b[32mfits on 1 of 2 nodes\x1b[0m" in on_a_terminal(path)
    assert "\x1b[" not in on_a_terminal(path, NO_COLOR="1")
    assert max(map(len, on_a_terminal(path, NO_COLOR="1", COLUMNS="44").splitlines())) <= 44


WRONG: dict[str, tuple[list[str], str]] = {
    "kind": (["service/x", "--from", "FILE"], "'service' is not a kind that waits for devices"),
    "name": (["claim/none", "--from", "FILE"], "there is no claim default/none"),
    "node": (["claim/train", "-n", "team", "--from", "FILE", "--node", "x"], "there is no node x; known nodes: node-a"),
    "file": (["claim/train", "--from", "FOLDER/none.yaml"], "cannot be read (No such file or directory)"),
    "kubeconfig": (["claim/train", "--kubeconfig", "FOLDER/none"], "FOLDER/none"),
    "nothing": (["--kubeconfig", "KUBECONFIG"], "nothing to explain: give 'pod NAME', 'claim NAME'"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_used_is_exit_code_2(wrong: str, tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path, *CLUSTER, claim(request()))
    config = kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    named = {"FILE": path, "KUBECONFIG": str(config)}
    words, message = WRONG[wrong]
    assert main(["explain", *(named.get(word, word.replace("FOLDER", str(tmp_path))) for word in words)]) == 2
    assert message.replace("FOLDER", str(tmp_path)) in capsys.readouterr().err


def kubeconfig(path: Path, server: str) -> Path:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def server() -> Iterator[StubApiServer]:
    with serving(MadeCluster(*CLUSTER, claim(request()), pod())) as started:
        yield started


def test_a_live_cluster_is_asked_by_kubeconfig(server: StubApiServer, tmp_path: Path, capsys: Any) -> None:
    config = str(kubeconfig(tmp_path / "config", server.url))
    assert main(["explain", "pod", "train-0", "--kubeconfig", config]) == 0
    assert capsys.readouterr().out == (
        "pod team/train-0 (claim team/train) fits on 1 of 2 nodes\n\n"
        'node-a\n  request "gpu": gpu-0 of gpu.example.com, pool node-a\n\n'
        "1 other node does not fit; --all-nodes shows why\n"
    )


@pytest.mark.parametrize("pattern", ['"^no-library-here$"', MODEL])
def test_a_library_that_is_missing_here_is_not_taken_for_the_clusters_fault(
    pattern: str, answers: CaseAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    selector = f"{MODEL}.matches({pattern})"
    devices = [device("gpu-0", model="no-library-there")]
    answers(A, GPU_CLASS, resource_slice("node-a", devices), claim(request("gpu", GPU, 1, selector)))
    assert answers.code == 2
    assert answers.err.endswith("regular expressions need the library google-re2: pip install 'ostler[explain]'\n")


def test_a_thousand_nodes_are_told_in_few_lines_and_in_time(tmp_path: Path, capsys: Any) -> None:
    objects: list[Any] = [GPU_CLASS, claim(request("gpu", GPU, 2, f'{MODEL} == "H200"'))]
    for number in range(1000):
        name = f"node-{number:04}"
        model = "H200" if number % 250 == 0 else "A100"
        devices = [device(f"gpu-{i}", model=model, uuid=f"GPU-{number}-{i}") for i in range(8)]
        objects += [node(name), resource_slice(name, devices, pool={"generation": number % 7 + 1})]
        if model == "H200":
            objects.append(holder(name, *(f"gpu-{i}" for i in range(8)), name=f"holder-{number}"))
    path = write(tmp_path, *objects)
    begin = time.process_time()
    assert main(["explain", "claim/train", "-n", "team", "--from", path]) == 1
    spent = time.process_time() - begin
    text = capsys.readouterr().out
    assert text == (
        "claim team/train fits on none of 1000 nodes\n\n"
        "4 nodes (node-0000, node-0250 … 2 more), shown: node-0000\n"
        '  request "gpu": 8 of 8 devices suit, all held, 2 wanted\n'
        "    gpu-0, gpu-1, gpu-2 … 5 more held by claim team/holder-0 (pod team/busy)\n"
        "  → it would fit here if nothing were held by others\n\n"
        "996 nodes (node-0001, node-0002 … 994 more)\n"
        '  request "gpu": 0 of 8 devices suit, 2 wanted\n'
        f'    8 \N{MULTIPLICATION SIGN} request "gpu", selector 1: {MODEL} == "H200" is false: model is "A100"\n'
        '  → it would fit here without selector 1 of request "gpu"\n'
    )
    # With reading 6 MB of JSON; the answer itself takes a tenth of it. A machine may be five times slower.
    assert spent < 10


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_after_a_second_and_leaves_nothing() -> None:
    now = 0.0
    stream = _Terminal()
    progress = Progress(stream, lambda: now)
    progress.nodes(1, 1000)
    now = 0.9
    progress.nodes(2, 1000)
    assert stream.getvalue() == ""
    now = 1.1
    progress.nodes(3, 1000)
    now = 1.15
    progress.nodes(4, 1000)
    assert stream.getvalue() == "\r\x1b[Klooking at nodes: 3 of 1000"
    progress.end()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_progress_is_for_terminals_alone() -> None:
    now = 0.0
    stream = io.StringIO()
    progress = Progress(stream, lambda: now)
    now = 5.0
    progress.say("reading")
    progress.end()
    assert stream.getvalue() == ""


def test_many_claims_are_told_in_few_lines(answers: CaseAnswers) -> None:
    names = [f"c{number:02}" for number in range(20)]
    claims = [claim(request(), name=name) for name in names]
    objects = (A, GPU_CLASS, resource_slice("node-a", gpus(15)), *claims, pod(claims=names))
    said = answers(*objects, ask="pod/train-0").splitlines()
    assert said[0].startswith("pod team/train-0 (claims team/c00, team/c01")
    assert said[0].endswith("team/c07 … 12 more) does not fit on node-a")
    assert said[3].endswith('team/c06 "gpu" and 9 more can each be met, but not together')
    assert said[4:] == [
        *(f'  claim team/c0{number}, request "gpu": 15 of 15 devices suit, 1 wanted' for number in range(3)),
        "  13 more requests: the same",
    ]


def test_a_device_that_cannot_be_read_and_is_not_asked_for_stops_nothing(answers: CaseAnswers) -> None:
    near: dict[str, Any] = {"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["x"]}]}
    odd = device("odd", more={"nodeSelector": {"nodeSelectorTerms": [near]}})
    fine = device("fine", more={"nodeName": "node-a"})
    slices = [
        resource_slice("node-a", gpus(1)),
        resource_slice("rack", [fine, odd], "nic.example.com", nodeName=None, perDeviceNodeSelection=True),
    ]
    printed = answers(A, GPU_CLASS, *slices, claim(request()))
    assert printed.startswith("claim team/train fits on node-a\n")
