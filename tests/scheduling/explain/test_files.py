"""Reading files: what is understood, what is refused and with which words, and within which bounds."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from pathlib import Path

import pytest
import yaml

from kube.bodies import Json, object_at
from ostler.explain.documents import documents
from ostler.explain.files import FileObjects, read_files
from ostler.explain.yaml_objects import MAX_DEPTH
from scheduling.explain.state import BadInput, Kind, name_of
from tests.scheduling.explain.objects import claim, device_class, node, pod, resource_slice

SLICE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-1-gpu}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes:
      model: {string: a100}
    capacity:
      memory: {value: 80Gi}
"""


@pytest.fixture
def read(tmp_path: Path) -> object:
    def from_text(text: str | bytes, name: str = "a.yaml") -> FileObjects:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        os.chdir(tmp_path)
        return read_files([name])

    return from_text


def refused(read: object, text: str | bytes, name: str = "a.yaml") -> str:
    with pytest.raises(BadInput) as caught:
        read(text, name)  # type: ignore[operator]
    return str(caught.value)


@pytest.fixture(autouse=True)
def _same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_documents_of_one_file_all_count(read: object) -> None:
    text = f"{SLICE}---\n# only a remark\n---\n{yaml.safe_dump(device_class('gpu'))}---\n{yaml.safe_dump(pod('p'))}"
    state = read(text).state  # type: ignore[operator]
    assert [name_of(body) for body in (*state.slices, *state.classes, *state.pods)] == ["node-1-gpu", "gpu", "p"]
    assert state.origin == "a.yaml"


def test_lists_as_kubectl_writes_them_are_taken_apart(read: object) -> None:
    mixed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [node("node-1"), claim("c")],
        "metadata": {"resourceVersion": ""},
    }
    state = read(json.dumps(mixed), "a.json").state  # type: ignore[operator]
    assert (len(state.nodes), len(state.claims)) == (1, 1)


def test_items_of_a_typed_list_have_the_lists_kind_and_version(read: object) -> None:
    bare = {
        "metadata": {"name": "s"},
        "spec": {"driver": "d", "pool": {"name": "p"}, "devices": [{"name": "x", "basic": {}}]},
    }
    text = json.dumps({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSliceList", "items": [bare]})
    (body,) = read(text).state.slices  # type: ignore[operator]
    assert (body["apiVersion"], body["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")


def test_old_versions_become_v1_with_its_defaults(read: object) -> None:
    text = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: r, deviceClassName: gpu}]}}
"""
    (body,) = read(text).state.claims  # type: ignore[operator]
    assert object_at(body, "spec", "devices")["requests"] == [
        {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    ]


def test_folders_and_standard_input_are_read_and_no_file_twice(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "b.yml").write_text(yaml.safe_dump(node("node-b")))
    (folder / "a.json").write_text(json.dumps(node("node-a")))
    (folder / "c.txt").write_text("not ours")
    stdin = io.BytesIO(yaml.safe_dump(node("node-c")).encode())
    state = read_files(["f", "-", "f/a.json", "-"], stdin).state
    assert [name_of(body) for body in state.nodes] == ["node-a", "node-b", "node-c"]
    assert state.origin == "f, standard input, f/a.json"


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text(yaml.safe_dump(node("node-1"))))
    writer.start()
    state = read_files(["pipe"]).state
    writer.join(60)
    assert name_of(state.nodes[0]) == "node-1"


def test_what_decides_nothing_is_a_note(read: object) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\napiVersion: v1\nkind: ConfigMap\n---\n" + SLICE
    reading = read(text)  # type: ignore[operator]
    assert reading.notes == ("left out, since no allocation depends on them: ConfigMap (2)",)


def test_a_kind_of_ours_in_another_group_is_a_note(read: object) -> None:
    reading = read("apiVersion: example.com/v1\nkind: ResourceClaim\nmetadata: {name: x}\n")  # type: ignore[operator]
    assert reading.notes == ("left out, since no allocation depends on them: ResourceClaim (1)",)


def test_a_workload_stands_for_its_pods(read: object) -> None:
    spec = {"containers": [{"name": "main"}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"template": {"spec": spec}},
    }
    reading = read(yaml.safe_dump(job))  # type: ignore[operator]
    assert reading.state.find(Kind.POD, "train", "team")["spec"] == spec
    assert reading.notes == ("Job train: asked for its one pod",)


@pytest.mark.parametrize(
    ("kind", "spec", "note"),
    [
        ("Deployment", {"replicas": 3}, "Deployment train: asked for 1 of its 3 pods; each of them asks for the same"),
        ("StatefulSet", {"replicas": 2, "volumeClaimTemplates": [{}]}, "StatefulSet train: asked for 1 of its 2 pods;"),
        ("ReplicaSet", {}, "ReplicaSet train: asked for its one pod"),
        ("DaemonSet", {}, "DaemonSet train: asked for one pod; it makes one on each node that its pods may run on"),
    ],
)
def test_for_how_many_pods_of_a_workload_was_asked_is_said(
    read: object, kind: str, spec: dict[str, Json], note: str
) -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}
    body = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "train"},
        "spec": {**spec, "template": template},
    }
    (told,) = read(yaml.safe_dump(body)).notes  # type: ignore[operator]
    assert told.startswith(note)


def test_workloads_and_pods_with_one_name_are_all_kept(read: object) -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}
    bodies = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {"template": template}},
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "x"},
            "spec": {
                "jobTemplate": {
                    "spec": {"parallelism": 4, "template": {"spec": {**template["spec"], "nodeName": "n1"}}}
                }
            },
        },
    ]
    reading = read(yaml.safe_dump_all(bodies))  # type: ignore[operator]
    assert sorted(each["metadata"]["name"] for each in reading.state.pods) == ["x", "x-cronjob"]
    assert "CronJob x: asked for 1 of its 4 pods; each of them asks for the same" in reading.notes
    assert "CronJob x: its pod is called x-cronjob here, since the files have another x" in reading.notes


def test_a_compute_domain_brings_the_claim_template_that_pods_name(read: object) -> None:
    domain = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"numNodes": 4, "channel": {"resourceClaimTemplate": {"name": "train-channel"}}},
    }
    reading = read(yaml.safe_dump(domain))  # type: ignore[operator]
    (made,) = reading.state.templates
    assert (made["metadata"]["namespace"], made["metadata"]["name"]) == ("team", "train-channel")
    (request,) = made["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "compute-domain-default-channel.nvidia.com"
    (told,) = reading.notes
    assert told == (
        "ComputeDomain train: NVIDIA's controller makes claim template train-channel for it, which asks for an IMEX "
        "channel of the node (a device of driver compute-domain.nvidia.com, whose type is channel)"
    )
    bare = {**domain, "spec": {"numNodes": 4}}
    assert read(yaml.safe_dump(bare)).notes == (  # type: ignore[operator]
        "left out, since no allocation depends on them: ComputeDomain (1)",
    )


def test_a_name_that_is_to_be_made_up_begins_as_given(read: object) -> None:
    body = pod("x")
    body["metadata"] = {"generateName": "train-", "namespace": "team"}
    assert read(yaml.safe_dump(body)).state.find(Kind.POD, "train", "team")  # type: ignore[operator]


def test_an_object_that_an_api_server_refuses_is_a_warning(read: object) -> None:
    body = claim("c", count=-1)
    reading = read(yaml.safe_dump(body))  # type: ignore[operator]
    assert len(reading.state.claims) == 1
    assert reading.notes[0].startswith(
        "a.yaml:1: ResourceClaim c: an API server would refuse it: spec.devices.requests[0].exactly.count: "
    )


def test_an_object_that_was_in_a_cluster_is_not_judged_again(read: object) -> None:
    assert read(yaml.safe_dump(claim("c", count=-1, uid="u"))).notes == ()  # type: ignore[operator]


def test_numbers_as_quantities_become_texts(read: object) -> None:
    (body,) = read(SLICE.replace("80Gi", "80")).state.slices  # type: ignore[operator]
    assert body["spec"]["devices"][0]["capacity"] == {"memory": {"value": "80"}}


DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
BAD_OBJECTS = {
    "list": (
        SLICE.replace("  devices:\n", "  devices: none\n  other:\n"),
        "a.yaml:8: ResourceSlice node-1-gpu spec.devices: must be a list, but is the string 'none'; write its items",
    ),
    "text": (
        SLICE.replace("- name: gpu-0", "- name: 7"),
        "a.yaml:9: ResourceSlice node-1-gpu spec.devices[0].name: must be a string, but is the number 7; write it in q",
    ),
    "number": (
        SLICE.replace("generation: 1", "generation: '1'"),
        "a.yaml:7: ResourceSlice node-1-gpu spec.pool.generation: must be a whole number, but is the string '1'; write",
    ),
    "missing": (
        SLICE.replace("  driver: gpu.example.com\n", ""),
        "a.yaml:4: ResourceSlice node-1-gpu spec.driver: is missing; give a string",
    ),
    "version": (
        SLICE.replace("v1\nkind", "v7\nkind", 1),
        "a.yaml:1: ResourceSlice node-1-gpu apiVersion: 'v7' is not a version of this kind; write one of v1, v1beta2",
    ),
    "kind": (
        SLICE.replace("kind: ResourceSlice\n", ""),
        "a.yaml:1: node-1-gpu kind: is missing; write it as 'kubectl get -o yaml' does",
    ),
    "name": (
        SLICE.replace("name: node-1-gpu", "labels: {a: b}"),
        "a.yaml:1: ResourceSlice metadata.name: is missing; give the object a name",
    ),
    "twice": (
        f"{SLICE}---\n{SLICE.replace('a100', 'h100')}",
        "a.yaml:15: ResourceSlice node-1-gpu: is given twice with different contents, first in a.yaml:1; keep one of the two",  # noqa: E501
    ),
    "no object": ("- 5\n", "a.yaml:1: is not an object; write apiVersion, kind, metadata and spec"),
    "items": (
        "apiVersion: v1\nkind: List\nitems: {}\n",
        "a.yaml:3: List items: must be a list; write each item after '- '",
    ),
    "workload": (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n",
        "a.yaml:1: Job j spec: has no pod template; write it with its template",
    ),
    "replicas": (
        f"{DEPLOYMENT}spec: {{replicas: '3', template: {{spec: {{containers: []}}}}}}\n",
        "a.yaml:4: Deployment web spec.replicas: is '3', no number of pods; write a whole number of 0 or more, without",
    ),
    "workload twice": (
        "---\n".join(f"{DEPLOYMENT}spec: {{replicas: {n}, template: {{spec: {{containers: []}}}}}}\n" for n in (1, 2)),
        "a.yaml:6: Deployment web: is given twice with different contents; keep one of the two",
    ),
    "snapshot": (
        "apiVersion: ostler.dev/v2\nkind: Snapshot\n",
        "a.yaml:1: Snapshot apiVersion: is 'ostler.dev/v2', which this version cannot read; use the ostler that wrote",
    ),
}
BAD_TEXTS = {
    "a: [1\nb: 2\n": "a.yaml:2: not valid YAML: did not find expected ',' or ']'; correct the indentation, ",
    "a:\n\tb: 2\n": "a.yaml:2: not valid YAML: found character that cannot start any token; indent with blanks",
    "a: 1\na: 2\n": "a.yaml:2: the key 'a' appears twice in one mapping; keep one of the two",
    "a: *b\n": "a.yaml:1: the alias *b names nothing; quote a text that begins with *",
    "a: &b [*b]\n": "a.yaml:1: the alias *b refers to a list or mapping that contains it; write the value out",
    "a: !!python/none x\n": "a.yaml:1: the tag !!python/none is not supported; write the plain value",
    "a: .inf\n": "a.yaml:1: .inf is not a number that the API accepts; write another number, or text in quotes",
    "? [1]\n: 2\n": "a.yaml:1: a key is a list or mapping; a key must be text; quote what begins with { or [",
    "a: \x01\n": "a.yaml:1: not valid YAML: control characters are not allowed; ",
    b"a: 1\nb: \xff\n": "a.yaml:2: the byte 0xff is not UTF-8; save the file as UTF-8",
    '{"apiVersion": "v1",\n"kind": }': "a.yaml:2: not valid JSON: Expecting value; correct it, or fetch it again",
    '{"apiVersion": "v1", "a": 1, "a": 2}': "a.yaml: not valid JSON: the key 'a' appears twice in one object; correct",
    '{"apiVersion": "v1", "a": NaN}': "a.yaml: not valid JSON: NaN is not a number that the API accepts; correct it",
    "[" * 200 + "]" * 200: f"a.yaml: nested deeper than {MAX_DEPTH} levels; no object of the API is that deep",
    "{a: " + "[" * 200 + "]" * 200 + "}": f"a.yaml:1: nested deeper than {MAX_DEPTH} levels; no object of the API is",
}


@pytest.mark.parametrize(
    ("text", "message"),
    [*(pytest.param(*pair, id=name) for name, pair in BAD_OBJECTS.items()), *BAD_TEXTS.items()],
)
def test_bad_input_names_line_object_field_and_fix(read: object, text: str | bytes, message: str) -> None:
    assert refused(read, text).startswith(message)


def test_every_fault_is_told_and_not_only_the_first(read: object, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("a: [")
    (tmp_path / "a.yaml").write_text(
        SLICE.replace("name: gpu-0", "name: 7").replace("driver: gpu.example.com", "driver: 5")
    )
    with pytest.raises(BadInput) as caught:
        read_files(["a.yaml", "b.yaml", "c.yaml"])
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["b.yaml:2", "c.yaml", "a.yaml:5", "a.yaml:9"]
    assert "cannot be read (No such file or directory); give a file or folder that exists" in lines[1]


def test_many_faults_are_told_in_few_lines(read: object) -> None:
    text = "---\n".join("apiVersion: v1\nmetadata: {}\n" for _ in range(500))
    assert refused(read, text).splitlines()[-1] == "and 480 more"


def test_a_folder_without_objects_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(BadInput, match=r"f: the folder holds no objects; put .yaml, .yml, .json files into it"):
        read_files(["f"])


def test_equal_objects_may_be_given_twice(read: object) -> None:
    assert len(read(f"{SLICE}---\n{SLICE}").state.slices) == 1  # type: ignore[operator]


def test_aliases_and_merges_are_what_kubectl_makes_of_them(read: object) -> None:
    text = "a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}\nc: {<<: [*x, {k: 9, m: 4}]}\nd: *x\n"
    (document,) = documents("a", text.encode())
    assert document.body == yaml.safe_load(text)


def test_aliases_that_multiply_are_refused_in_no_time(read: object) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    began = time.process_time()
    message = refused(read, "\n".join(lines))
    assert "aliases make more than 100000 values of this document; write the objects out, without aliases" in message
    assert time.process_time() - began < 5


def test_a_file_that_is_too_large_is_refused_unread(read: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostler.explain.documents.MAX_BYTES", 1 << 20)
    assert refused(read, b"#" * ((1 << 20) + 1)).startswith(
        "a.yaml: has more than 1 MiB; give the objects in several files"
    )


@pytest.mark.parametrize("text", ["[" + "1," * 3000 + "1]", "- 1\n" * 3000])
def test_too_many_values_are_refused(read: object, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("documents", "yaml_objects"):
        monkeypatch.setattr(f"ostler.explain.{module}.MAX_VALUES", 1000)
    assert refused(read, text) == "a.yaml: holds more than 1000 values; give the objects in several files"


def test_objects_without_a_namespace_get_the_one_that_is_asked_for(tmp_path: Path) -> None:
    body = pod("train")
    body["metadata"] = {"name": "train"}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all([body, pod("other", "own"), node("node-1")]))
    state = read_files(["a.yaml"], namespace="team").state
    assert state.find(Kind.POD, "train", "team")
    assert state.find(Kind.POD, "other", "own")
    assert read_files(["a.yaml"]).state.find(Kind.POD, "train", "default")


def test_ten_thousand_devices_are_read_in_seconds(read: object) -> None:
    attributes: Json = {f"a{number}": {"string": f"value-{number}"} for number in range(12)}
    bodies = []
    for number in range(80):
        body = resource_slice(f"s{number}", f"n{number}")
        body["spec"]["devices"] = [{"name": f"gpu-{one}", "attributes": attributes} for one in range(128)]  # type: ignore[index, call-overload]
        bodies.append(body)

    class Plain(yaml.CSafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    text = yaml.dump_all(bodies, Dumper=Plain)
    began = time.process_time()
    state = read(text).state  # type: ignore[operator]
    assert time.process_time() - began < 15
    assert sum(len(body["spec"]["devices"]) for body in state.slices) == 80 * 128


def test_places_name_file_and_line(read: object) -> None:
    reading = read(f"{SLICE}---\n{yaml.safe_dump(node('node-1'))}")  # type: ignore[operator]
    assert reading.places == {(Kind.SLICE, "", "node-1-gpu"): "a.yaml:1", (Kind.NODE, "", "node-1"): "a.yaml:15"}
