"""Reading files: what is understood, and as which objects."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.bodies import Json, object_at
from ostler.explain.documents import documents
from ostler.explain.files import read_files
from scheduling.explain.state import Kind, name_of
from tests.scheduling.explain.cases import SLICE
from tests.scheduling.explain.objects import claim, device_class, node, pod, resource_slice

pytestmark = pytest.mark.usefixtures("same_folder")


def test_documents_of_one_file_all_count(read: Any) -> None:
    text = f"{SLICE}---\n# only a remark\n---\n{yaml.safe_dump(device_class('gpu'))}---\n{yaml.safe_dump(pod('p'))}"
    state = read(text).state
    assert [name_of(body) for body in (*state.slices, *state.classes, *state.pods)] == ["node-1-gpu", "gpu", "p"]
    assert state.origin == "a.yaml"


def test_lists_as_kubectl_writes_them_are_taken_apart(read: Any) -> None:
    mixed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [node("node-1"), claim("c")],
        "metadata": {"resourceVersion": ""},
    }
    state = read(json.dumps(mixed), "a.json").state
    assert (len(state.nodes), len(state.claims)) == (1, 1)


def test_items_of_a_typed_list_have_the_lists_kind_and_version(read: Any) -> None:
    bare = {
        "metadata": {"name": "s"},
        "spec": {"driver": "d", "pool": {"name": "p"}, "devices": [{"name": "x", "basic": {}}]},
    }
    text = json.dumps({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSliceList", "items": [bare]})
    (body,) = read(text).state.slices
    assert (body["apiVersion"], body["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")


def test_old_versions_become_v1_with_its_defaults(read: Any) -> None:
    text = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: r, deviceClassName: gpu}]}}
"""
    (body,) = read(text).state.claims
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


def test_what_decides_nothing_is_a_note(read: Any) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\napiVersion: v1\nkind: ConfigMap\n---\n" + SLICE
    reading = read(text)
    assert reading.notes == ("left out, since no allocation depends on them: ConfigMap (2)",)


def test_a_kind_of_ours_in_another_group_is_a_note(read: Any) -> None:
    reading = read("apiVersion: example.com/v1\nkind: ResourceClaim\nmetadata: {name: x}\n")
    assert reading.notes == ("left out, since no allocation depends on them: ResourceClaim (1)",)


def test_a_workload_stands_for_its_pods(read: Any) -> None:
    spec = {"containers": [{"name": "main"}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"template": {"spec": spec}},
    }
    reading = read(yaml.safe_dump(job))
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
    read: Any, kind: str, spec: dict[str, Json], note: str
) -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}
    body = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "train"},
        "spec": {**spec, "template": template},
    }
    (told,) = read(yaml.safe_dump(body)).notes
    assert told.startswith(note)


def test_workloads_and_pods_with_one_name_are_all_kept(read: Any) -> None:
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
    reading = read(yaml.safe_dump_all(bodies))
    assert sorted(each["metadata"]["name"] for each in reading.state.pods) == ["x", "x-cronjob"]
    assert "CronJob x: asked for 1 of its 4 pods; each of them asks for the same" in reading.notes
    assert "CronJob x: its pod is called x-cronjob here, since the files have another x" in reading.notes


def test_a_compute_domain_brings_the_claim_template_that_pods_name(read: Any) -> None:
    domain = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"numNodes": 4, "channel": {"resourceClaimTemplate": {"name": "train-channel"}}},
    }
    reading = read(yaml.safe_dump(domain))
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
    assert read(yaml.safe_dump(bare)).notes == ("left out, since no allocation depends on them: ComputeDomain (1)",)


def test_a_name_that_is_to_be_made_up_begins_as_given(read: Any) -> None:
    body = pod("x")
    body["metadata"] = {"generateName": "train-", "namespace": "team"}
    assert read(yaml.safe_dump(body)).state.find(Kind.POD, "train", "team")


def test_an_object_that_an_api_server_refuses_is_a_warning(read: Any) -> None:
    body = claim("c", count=-1)
    reading = read(yaml.safe_dump(body))
    assert len(reading.state.claims) == 1
    assert reading.notes[0].startswith(
        "a.yaml:1: ResourceClaim c: an API server would refuse it: spec.devices.requests[0].exactly.count: "
    )


def test_an_object_that_was_in_a_cluster_is_not_judged_again(read: Any) -> None:
    assert read(yaml.safe_dump(claim("c", count=-1, uid="u"))).notes == ()


def test_numbers_as_quantities_become_texts(read: Any) -> None:
    (body,) = read(SLICE.replace("80Gi", "80")).state.slices
    assert body["spec"]["devices"][0]["capacity"] == {"memory": {"value": "80"}}


def test_equal_objects_may_be_given_twice(read: Any) -> None:
    assert len(read(f"{SLICE}---\n{SLICE}").state.slices) == 1


def test_aliases_and_merges_are_what_kubectl_makes_of_them(read: Any) -> None:
    text = "a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}\nc: {<<: [*x, {k: 9, m: 4}]}\nd: *x\n"
    (document,) = documents("a", text.encode())
    assert document.body == yaml.safe_load(text)


def test_objects_without_a_namespace_get_the_one_that_is_asked_for(tmp_path: Path) -> None:
    body = pod("train")
    body["metadata"] = {"name": "train"}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all([body, pod("other", "own"), node("node-1")]))
    state = read_files(["a.yaml"], namespace="team").state
    assert state.find(Kind.POD, "train", "team")
    assert state.find(Kind.POD, "other", "own")
    assert read_files(["a.yaml"]).state.find(Kind.POD, "train", "default")


def test_ten_thousand_devices_are_read_in_seconds(read: Any) -> None:
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
    state = read(text).state
    assert time.process_time() - began < 15
    assert sum(len(body["spec"]["devices"]) for body in state.slices) == 80 * 128


def test_places_name_file_and_line(read: Any) -> None:
    reading = read(f"{SLICE}---\n{yaml.safe_dump(node('node-1'))}")
    assert reading.places == {(Kind.SLICE, "", "node-1-gpu"): "a.yaml:1", (Kind.NODE, "", "node-1"): "a.yaml:15"}
