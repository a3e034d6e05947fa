"""Objects in protobuf, as Kubernetes' own serializer writes them, mean the same as its JSON."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.apiserver.protobuf import CONTENT_TYPE, UnknownKindError, decode
from sandbox.apiserver.server import ApiServer
from tests.sandbox.apiserver.web import SLICES, ask

# Objects in both forms, written by the serializers of apimachinery 0.36.3.
CASES = [json.loads(line) for line in Path(__file__).with_name("protobuf.jsonl").read_text().splitlines()]


def _bytes(case: dict[str, Any]) -> bytes:
    return base64.b64decode(case["protobuf"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_object_means_the_same_in_both_forms(case: dict[str, Any]) -> None:
    assert _without_nothing(decode(_bytes(case))) == _without_nothing(case["json"])


def _without_nothing(value: Any) -> Any:
    """Without nulls and empty mappings, which say in JSON what protobuf leaves out."""
    if isinstance(value, dict):
        found = {key: _without_nothing(each) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not None and each != {}}
    return [_without_nothing(each) for each in value] if isinstance(value, list) else value


def test_server_takes_a_slice_in_protobuf_and_answers_in_json(server: ApiServer) -> None:
    case = next(each for each in CASES if each["json"].get("metadata", {}).get("name") == "valid")
    path = SLICES.replace("/v1/", "/v1beta1/")
    reply = ask(server, "POST", path, _bytes(case), content_type=CONTENT_TYPE)
    assert reply.code == 201, reply.body
    assert reply.body["spec"]["devices"][0]["basic"]["attributes"] == {"index": {"int": 0}}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{}", "the body does not begin as an object in protobuf does"),
        (b"k8s\x00\x0a", "a number ends with the message"),
        (b"k8s\x00\x0a\x05a", "field 1 is longer than the message"),
        (b"k8s\x00\x0b", "field 1 has the unknown wire type 3"),
        (b"k8s\x00\x08" + b"\xff" * 11, "a number has more than 10 bytes"),
        (b"k8s\x00\x08\x01", "a number stands where text or a message belongs"),
        (b"k8s\x00\x1a\x01x", "the object in the envelope is encoded once more"),
    ],
)
def test_bytes_that_are_no_object_are_refused(server: ApiServer, data: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode(data)
    reply = ask(server, "POST", SLICES, data, content_type=CONTENT_TYPE)
    assert reply.code == 400
    assert reply.body["message"] == f"the body of the request is not an object in protobuf: {problem}"


def test_every_cut_object_is_refused_or_read_and_never_worse() -> None:
    whole = _bytes(CASES[0])
    for end in range(len(whole)):
        try:
            decode(whole[:end])
        except ValueError:
            continue


def test_kind_that_no_driver_writes_is_named() -> None:
    with pytest.raises(UnknownKindError, match=r"^Pod of v1$"):
        decode(b"k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod")
