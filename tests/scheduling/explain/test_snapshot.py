"""Snapshots: what they keep and replace, and that the answer stays the same.

Every text field of the API is marked, and the marks that come through a snapshot are read. The two lists in
``survivors/`` were judged line by line. A field that the API gains, or a rule of ours that keeps more, changes them:
then somebody has to decide again.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import models

from kube.bodies import Json, JsonObject, object_at
from ostler.cli.main import main
from ostler.explain.files import read_files
from ostler.explain.kept import NameGroup
from ostler.explain.snapshot import Anonymous, anonymous, as_json, as_yaml, reduced
from scheduling.explain.nodes import hindrances
from scheduling.explain.question import Question
from scheduling.explain.state import (
    FACTS,
    BadQuestion,
    Kind,
    MissingKind,
    State,
    key_of,
    name_of,
    namespace_of,
    objects_at,
)
from scheduling.explain.subject import subject_of
from tests.kube.server import ApiServer
from tests.making.slices import DRIVER
from tests.scheduling.explain.cluster import Cluster, serving, status
from tests.scheduling.explain.objects import (
    allocated,
    claim,
    device_class,
    node,
    pod,
    resource_slice,
    taint_rule,
    template,
)

SECRET = "s3cret"


def loaded_pod() -> JsonObject:
    """A pod with everything that must not be kept."""
    body = pod(
        "train", uid="u-1", resourceClaims=[{"name": "gpu", "resourceClaimName": "held"}], serviceAccountName=SECRET
    )
    container: JsonObject = {
        "name": "main",
        "image": SECRET,
        "env": [{"name": "TOKEN", "value": SECRET}],
        "args": [SECRET],
    }
    body["spec"] = {**object_at(body, "spec"), "containers": [container], "volumes": [{"name": SECRET}]}
    noted: JsonObject = {"kubectl.kubernetes.io/last-applied-configuration": SECRET}
    body["metadata"] = {**object_at(body, "metadata"), "annotations": noted, "managedFields": [{"manager": SECRET}]}
    return status(body, phase="Pending", podIP=SECRET, conditions=[{"type": "PodScheduled", "status": "False"}])


def small_state() -> State:
    held = allocated(claim("held"), ("node-1", "gpu-0"), pods=("train",))
    held = status(held, devices=[{"driver": DRIVER, "pool": "node-1", "device": "gpu-0", "data": {"x": SECRET}}])
    big = status(
        node("node-1", {"zone": "a"}, spec={"podCIDR": SECRET, "unschedulable": True}),
        addresses=[{"address": SECRET}],
        conditions=[{"type": "Ready", "status": "True", "message": "x"}, {"type": "DiskPressure", "status": "False"}],
        allocatable={"cpu": "5", "example.com/gpu": "2"},
    )
    return State(
        "somewhere",
        "v1.37.0",
        slices=(resource_slice("s", "node-1", "gpu-0"),),
        claims=(held,),
        classes=(device_class("gpu"),),
        nodes=(big,),
        pods=(loaded_pod(),),
        templates=(template("t"),),
        taint_rules=(taint_rule("r", deviceSelector={"pool": "node-1"}, taint={"key": "k", "effect": "NoSchedule"}),),
        truncated=("only some",),
        missing=(MissingKind(Kind.TAINT_RULE, "rules are forbidden", "ask"),),
        whole=frozenset({Kind.NODE}),
    )


def test_only_what_decides_allocations_is_kept() -> None:
    state = reduced(small_state())
    assert SECRET not in as_yaml(state)
    assert state.pods[0] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "team", "uid": "u-1"},
        "spec": {"containers": [{"name": "main"}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "held"}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
    }
    assert state.nodes[0]["spec"] == {"unschedulable": True}
    assert state.nodes[0]["status"] == {
        "conditions": [{"type": "Ready", "status": "True", "message": "x"}],
        "allocatable": {"example.com/gpu": "2"},
    }
    assert state.slices == small_state().slices


@pytest.mark.parametrize(("form", "name"), [(as_yaml, "a.yaml"), (as_json, "a.json")])
def test_a_snapshot_reads_back_as_it_was(form: Callable[..., str], name: str, tmp_path: Path) -> None:
    state = reduced(small_state())
    (tmp_path / name).write_text(form(state, taken_at="2026-01-01T00:00:00+00:00"))
    back = read_files([str(tmp_path / name)]).state
    for kind in Kind:
        if kind is not Kind.TAINT_RULE:
            assert [key_of(kind, body) for body in back.of(kind)] == [key_of(kind, body) for body in state.of(kind)]
    assert (back.slices, back.pods, back.nodes) == (state.slices, state.pods, state.nodes)
    assert (back.server_version, back.truncated, back.missing) == ("v1.37.0", ("only some",), state.missing)
    assert back.whole == {Kind.NODE}


def test_texts_that_look_like_other_things_stay_texts(tmp_path: Path) -> None:
    odd = [
        "y",
        "no",
        "1e3",
        "0o7",
        "010",
        "2026-01-01",
        "null",
        "~",
        "a: b",
        "- x",
        "\x7f",
        "ä",
        "1:30",
        "<<",
        "=",
        "a#b ",
    ]
    labels: dict[str, Json] = {f"k{number}": text for number, text in enumerate(odd)}
    (tmp_path / "a.yaml").write_text(as_yaml(State(nodes=(node("node-1", labels),))))
    (body,) = read_files([str(tmp_path / "a.yaml")]).state.nodes
    assert object_at(body, "metadata", "labels") == labels


def test_names_of_workloads_are_replaced_everywhere_alike() -> None:
    made = anonymous(small_state())
    text = as_yaml(made.state)
    assert not [word for word in ("train", "team", "held", "u-1", "uid-train", SECRET) if word in text]
    assert "node-1" in text
    assert made.names[NameGroup.POD] == {"train": "pod-01"}
    assert objects_at(made.state.claims[0], "status", "reservedFor")[0]["name"] == "pod-01"
    assert objects_at(made.state.pods[0], "spec", "resourceClaims") == (
        {"name": "use-01", "resourceClaimName": "claim-01"},
    )
    assert made.state.claims[0]["metadata"]["name"] == "claim-01"  # type: ignore[index, call-overload]
    assert made.state.missing == (MissingKind(Kind.TAINT_RULE, "devicetaintrules could not be read"),)


def test_names_and_labels_of_nodes_are_replaced_on_demand() -> None:
    state = small_state()
    labels: dict[str, Json] = {
        "zone": "berlin",
        "kubernetes.io/hostname": "node-1",
        "kubernetes.io/arch": "arm64",
        "n": "5",
    }
    state = state.with_objects(Kind.NODE, (node("node-1", labels), node("node-2")))
    text = as_yaml(anonymous(state, nodes=True).state)
    assert "berlin" not in text
    assert "zone" not in text
    (first, _) = anonymous(state, nodes=True).state.nodes
    found = object_at(first, "metadata", "labels")
    assert found == {
        "label-02": "value-01",
        "kubernetes.io/hostname": "node-01",
        "kubernetes.io/arch": "arm64",
        "label-01": "5",
    }
    rule = anonymous(state, nodes=True).state.taint_rules[0]
    assert object_at(rule, "spec", "deviceSelector") == {"pool": "pool-01"}


def test_opaque_parameters_are_replaced() -> None:
    config: list[Json] = [{"opaque": {"driver": DRIVER, "parameters": {"key": SECRET}}}]
    body = claim("c")
    body["spec"] = {"devices": {**object_at(body, "spec", "devices"), "config": config}}
    state = State(claims=(body,), classes=(device_class("gpu", config=config),))
    for made in (reduced(state), anonymous(state).state):
        assert SECRET not in as_yaml(made)
        assert DRIVER in as_yaml(made)


def test_labels_that_only_look_like_kubernetes_own_and_long_numbers_are_replaced() -> None:
    labels: dict[str, Json] = {
        "acme-kubernetes.io/x": "1",
        "topology.kubernetes.io/zone": "berlin",
        "account": "123456789012",
        "slots": "-12",
    }
    (body,) = anonymous(State(nodes=(node("n", labels),)), nodes=True).state.nodes
    assert object_at(body, "metadata", "labels") == {
        "label-02": "1",
        "topology.kubernetes.io/zone": "value-02",
        "label-01": "value-01",
        "label-03": "-12",
    }


def test_what_pods_name_themselves_is_replaced() -> None:
    conditions: list[Json] = [
        {"type": "acme.example/ready-for-secret-project", "status": "True"},
        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes"},
    ]
    body = status(pod("p", schedulerName="acme"), conditions=conditions)
    (made,) = anonymous(State(pods=(body,))).state.pods
    assert object_at(made, "status")["conditions"] == [{"type": "PodScheduled", "status": "False"}]
    assert object_at(made, "spec")["schedulerName"] == "scheduler-01"
    (plain,) = anonymous(State(pods=(pod("p", schedulerName="default-scheduler"),))).state.pods
    assert object_at(plain, "spec")["schedulerName"] == "default-scheduler"


# The same answers: random small clusters, asked before and after.

LETTERS = st.sampled_from(["a", "b", "c", "zeta", "alpha-1", "alpha-10", "alpha-2"])
LABELS: st.SearchStrategy[dict[str, Json]] = st.dictionaries(
    st.sampled_from(["zone", "tier", "kubernetes.io/hostname"]), st.sampled_from(["x", "y", "7"])
)
ZONES = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"])


@st.composite
def states(draw: st.DrawFn) -> State:
    spaces = draw(st.lists(LETTERS, min_size=1, max_size=2, unique=True))
    place = st.tuples(st.sampled_from(spaces), LETTERS)
    hosts = draw(st.lists(LETTERS, min_size=1, max_size=3, unique=True))
    taint: st.SearchStrategy[Json] = st.fixed_dictionaries(
        {"key": st.sampled_from(["zone", "own"]), "value": LETTERS, "effect": st.just("NoSchedule")}
    )
    nodes = [
        node(
            host, draw(LABELS), spec={"unschedulable": draw(st.booleans()), "taints": draw(st.lists(taint, max_size=1))}
        )
        for host in hosts
    ]
    slices = [resource_slice(f"{host}-gpu", host, "gpu-0", pool=draw(LETTERS)) for host in hosts]
    claims = []
    for space, name in draw(st.lists(place, max_size=4, unique=True)):
        made = claim(name, space, uid=f"uid-{space}-{name}")
        held = draw(st.booleans())
        claims.append(allocated(made, (draw(LETTERS), "gpu-0"), pods=(draw(LETTERS),)) if held else made)
    templates = [template(name, space) for space, name in draw(st.lists(place, max_size=2, unique=True))]
    pods = [draw(pods_in(space, name)) for space, name in draw(st.lists(place, min_size=1, max_size=3, unique=True))]
    return State(
        slices=tuple(slices), claims=tuple(claims), nodes=tuple(nodes), templates=tuple(templates), pods=tuple(pods),
        classes=(device_class("gpu"),),
    )  # fmt: skip


@st.composite
def pods_in(draw: st.DrawFn, space: str, name: str) -> JsonObject:
    kinds = st.sampled_from(["resourceClaimName", "resourceClaimTemplateName"])
    uses: list[Json] = [
        {"name": own, draw(kinds): draw(LETTERS)} for own in draw(st.lists(LETTERS, max_size=3, unique=True))
    ]
    operator = draw(ZONES)
    values: list[Json] = [] if "Exist" in operator else [draw(st.sampled_from(["x", "y", "5"]))]
    term: JsonObject = {"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}
    body = pod(
        name,
        space,
        uid=f"uid-{space}-{name}",
        resourceClaims=uses,
        nodeSelector=draw(LABELS),
        tolerations=[{"key": "own", "value": draw(LETTERS)}],
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
    )
    if draw(st.booleans()):
        body["spec"] = {**object_at(body, "spec"), "nodeName": draw(LETTERS)}
    statuses: list[Json] = [{"name": draw(LETTERS), "resourceClaimName": draw(LETTERS)}]
    return status(body, phase="Pending", resourceClaimStatuses=statuses) if draw(st.booleans()) else body


def told(state: State, space: str, name: str) -> object:
    """What is found out about a pod, without names."""
    subject = subject_of(state, Question(Kind.POD, space, name))
    assert subject.pod is not None
    where = [[(one.ground, one.blocking) for one in hindrances(subject.pod, on)] for on in state.nodes]
    return (
        [object_at(one, "spec") for one in subject.to_allocate],
        [
            [result["device"] for result in objects_at(one, "status", "allocation", "devices", "results")]
            for one in subject.allocated
        ],
        len(subject.missing),
        len(subject.notes),
        where,
    )


@given(states(), st.booleans())
def test_a_snapshot_with_other_names_gives_the_same_answers(state: State, nodes: bool) -> None:
    plain, made = reduced(state), anonymous(state, nodes=nodes)
    names = made.names
    for body in state.pods:
        alias = (names[NameGroup.NAMESPACE][namespace_of(body)], names[NameGroup.POD][name_of(body)])
        assert told(state, namespace_of(body), name_of(body)) == told(plain, namespace_of(body), name_of(body))
        assert told(state, namespace_of(body), name_of(body)) == told(made.state, *alias)


@given(states(), st.booleans())
def test_names_are_replaced_one_by_one_and_in_their_order(state: State, nodes: bool) -> None:
    made: Anonymous = anonymous(state, nodes=nodes)
    for table in made.names.values():
        aliases = [table[name] for name in sorted(table)]
        assert aliases == sorted(set(aliases))
    for kind in Kind:
        assert len({key_of(kind, body) for body in made.state.of(kind)}) == len(state.of(kind))
    assert [s["spec"]["devices"] for s in made.state.slices] == [s["spec"]["devices"] for s in state.slices]  # type: ignore[index, call-overload]


# The command.


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
    with serving(Cluster(node("node-1"), claim("c"), user, pod("other"), device_class("gpu"))) as server:
        out = tmp_path / "out.yaml"
        assert run("-o", str(out), "--kubeconfig", str(kubeconfig(tmp_path, server))) == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    state = read_files([str(out)]).state
    assert ([name_of(body) for body in state.pods], state.server_version) == (["train"], "v1.37.0")
    assert f"{out}: 1 nodes, 1 deviceclasses, 1 resourceclaims, 1 pods\n" in capsys.readouterr().err
    head = next(iter(yaml.safe_load_all(out.read_text())))
    assert (head["kind"], head["apiVersion"]) == ("Snapshot", "ostler.dev/v1alpha1")
    assert "takenAt" in head


def kubeconfig(folder: Path, server: ApiServer) -> Path:
    config = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": server.url}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    return folder / "kubeconfig"


def test_an_account_of_one_namespace_gets_that_one(tmp_path: Path) -> None:
    mine, others = claim("mine", namespace="team"), claim("theirs", namespace="other")
    cluster = Cluster(mine, others, device_class("gpu"))
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
    with ApiServer() as server:
        path = kubeconfig(tmp_path, server)
    assert run("--kubeconfig", str(path)) == 1
    assert "cannot be reached" in capsys.readouterr().err


def test_a_question_about_a_replaced_name_finds_nothing() -> None:
    with pytest.raises(BadQuestion, match="there is no pod team/train"):
        subject_of(anonymous(small_state()).state, Question(Kind.POD, "team", "train"))


LISTS = Path(__file__).with_name("survivors")
MODELS = {
    Kind.POD: "V1Pod",
    Kind.NODE: "V1Node",
    Kind.SLICE: "V1ResourceSlice",
    Kind.CLAIM: "ResourceV1ResourceClaim",
    Kind.CLASS: "V1DeviceClass",
    Kind.TEMPLATE: "V1ResourceClaimTemplate",
    Kind.TAINT_RULE: "V1DeviceTaintRule",
}
NUMBERS = {"int": 7, "float": 1.5, "bool": True}


def marked(form: str, path: str) -> Any:
    """A value of a type as the client library names it; texts are their own path."""
    if form in ("str", "datetime"):
        return f"@{path}@"
    if form in NUMBERS:
        return NUMBERS[form]
    if form == "object":
        return {f"@{path} (keys)@": f"@{path}@"}
    if inner := re.fullmatch(r"list\[(.*)\]", form, re.IGNORECASE):
        return [marked(inner[1], path)]
    if inner := re.fullmatch(r"dict[\[(]str, (.*)[\])]", form, re.IGNORECASE):
        return {f"@{path} (keys)@": marked(inner[1], path)}
    model = getattr(models, form)
    names = {model.attribute_map[name]: kind for name, kind in model.openapi_types.items()}
    return {name: marked(kind, f"{path}.{name}") for name, kind in names.items()}


def whole(kind: Kind) -> State:
    """One object of a kind in which every field is set."""
    body = marked(MODELS[kind], kind.value)
    body["kind"] = kind.value
    for owner in body["metadata"]["ownerReferences"]:
        owner["kind"] = "Pod"
    if kind is Kind.NODE:
        body["status"]["conditions"][0]["type"] = "Ready"
        body["status"]["allocatable"] = {"example.com/gpu": "@Node.status.allocatable of extended resources@"}
    return State(**{FACTS[kind].field: (body,)})  # type: ignore[arg-type]  # only fields of objects


def survivors(*, anonymised: bool) -> list[str]:
    made = (anonymous(whole(kind), nodes=True).state if anonymised else reduced(whole(kind)) for kind in MODELS)
    return sorted({mark for state in made for mark in re.findall("@([^@]+)@", as_json(state))})


@pytest.mark.parametrize("anonymised", [False, True])
def test_only_fields_that_were_judged_survive(anonymised: bool) -> None:
    judged = (LISTS / ("anonymised.txt" if anonymised else "plain.txt")).read_text().splitlines()
    assert survivors(anonymised=anonymised) == judged


def test_no_name_and_no_free_text_survives_a_change_of_names() -> None:
    ends = ("metadata.name", "namespace", "uid", "nodeName", "pool.name", "message", ".metadata.labels", "parameters")
    kept = {"DeviceClass.metadata.name"}
    assert [field for field in survivors(anonymised=True) if field.endswith(ends) and field not in kept] == []
