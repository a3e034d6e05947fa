"""Files that are refused: in which words, and within which bounds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ostler.explain.files import read_files
from ostler.explain.yaml_objects import MAX_DEPTH
from scheduling.explain.state import BadInput
from tests.scheduling.explain.cases import SLICE

pytestmark = pytest.mark.usefixtures("same_folder")


def refused(read: Any, text: str | bytes, name: str = "a.yaml") -> str:
    with pytest.raises(BadInput) as caught:
        read(text, name)
    return str(caught.value)


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
def test_bad_input_names_line_object_field_and_fix(read: Any, text: str | bytes, message: str) -> None:
    assert refused(read, text).startswith(message)


def test_every_fault_is_told_and_not_only_the_first(read: Any, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("a: [")
    (tmp_path / "a.yaml").write_text(
        SLICE.replace("name: gpu-0", "name: 7").replace("driver: gpu.example.com", "driver: 5")
    )
    with pytest.raises(BadInput) as caught:
        read_files(["a.yaml", "b.yaml", "c.yaml"])
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["b.yaml:2", "c.yaml", "a.yaml:5", "a.yaml:9"]
    assert "cannot be read (No such file or directory); give a file or folder that exists" in lines[1]


def test_many_faults_are_told_in_few_lines(read: Any) -> None:
    text = "---\n".join("apiVersion: v1\nmetadata: {}\n" for _ in range(500))
    assert refused(read, text).splitlines()[-1] == "and 480 more"


def test_a_folder_without_objects_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(BadInput, match=r"f: the folder holds no objects; put .yaml, .yml, .json files into it"):
        read_files(["f"])


def test_aliases_that_multiply_are_refused_in_no_time(read: Any) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    began = time.process_time()
    message = refused(read, "\n".join(lines))
    assert "aliases make more than 100000 values of this document; write the objects out, without aliases" in message
    assert time.process_time() - began < 5


def test_a_file_that_is_too_large_is_refused_unread(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostler.explain.documents.MAX_BYTES", 1 << 20)
    assert refused(read, b"#" * ((1 << 20) + 1)).startswith(
        "a.yaml: has more than 1 MiB; give the objects in several files"
    )


@pytest.mark.parametrize("text", ["[" + "1," * 3000 + "1]", "- 1\n" * 3000])
def test_too_many_values_are_refused(read: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("documents", "yaml_objects"):
        monkeypatch.setattr(f"ostler.explain.{module}.MAX_VALUES", 1000)
    assert refused(read, text) == "a.yaml: holds more than 1000 values; give the objects in several files"
