"""Recorded HTTP exchanges of the original (``tests/vectors/hived``), against a whole extender and a small API server.

The recording's scheduler never heard of most pods that were added while it ran: its answers say so. So changes are held
back until an answer shows that its scheduler had heard of them; ``test_decisions`` has such calls with prompt watches.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.making.extender import RunningExtender, extender
from tests.making.extender_cluster import ClusterApi

VECTORS = Path(__file__).resolve().parents[2] / "vectors/hived/http.jsonl"
SCENARIOS = [json.loads(line) for line in VECTORS.read_text().splitlines()]
UNHEARD = "has not been informed"
KINDS = ("User Error", "Platform Error")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each["name"] for each in SCENARIOS])
def test_answers_are_those_of_the_original(scenario: dict[str, Any], tmp_path: Path) -> None:
    objects = [each["object"] | {"kind": each["kind"]} for each in scenario["before"]]
    with ClusterApi(objects) as api, extender(tmp_path, api, scenario["config"]) as running:
        api.hold(is_holding=True)
        for number, step in enumerate(scenario["steps"]):
            if "api" in step:
                change(api, step["api"])
                continue
            catch_up(running, step)
            before = len(api.bindings)
            assert answer(running, step["request"]) == expected(step["response"]), f"step {number}"
            assert [bound(each) for each in api.bindings[before:]] == [bound(each) for each in step.get("bindings", [])]


def change(api: ClusterApi, step: dict[str, Any]) -> None:
    body = step["object"] | {"kind": step["kind"]}
    if step["verb"] == "delete":
        api.delete(step["kind"], body["metadata"]["name"], body["metadata"].get("namespace", ""))
    else:
        api.put(body)


def catch_up(running: RunningExtender, step: dict[str, Any]) -> None:
    """Let the watches go if the answer is about a pod that the original had heard of by then."""
    asked = step["request"].get("body") or {}
    about = (asked.get("Pod") or {}).get("metadata", {}).get("uid") or asked.get("PodUID")
    if about and UNHEARD not in json.dumps(step["response"]):
        running.api.hold(is_holding=False)
        running.settle()
        running.api.hold(is_holding=True)


def answer(running: RunningExtender, asked: dict[str, Any]) -> Any:
    body = asked["raw"].encode() if "raw" in asked else json.dumps(asked["body"]).encode() if "body" in asked else None
    status, content_type, content = running.raw(asked["method"], asked["path"], body)
    if content_type != "application/json":
        return status, content_type
    return status, content_type, comparable(json.loads(content))


def expected(response: dict[str, Any]) -> Any:
    if "body" not in response:
        return response["status"], response["contentType"]
    return response["status"], response["contentType"], comparable(response["body"])


def comparable(body: Any) -> Any:
    """A body as the recording's rules compare it: cells by address, groups by name, of an error its kind alone."""
    if isinstance(body, list):
        found = [comparable(each) for each in body]
        if found and all(isinstance(each, dict) for each in found):
            return sorted(
                found, key=lambda each: str(each.get("cellAddress") or each.get("metadata") or each.get("UID"))
            )
        return found
    if isinstance(body, dict):
        return {key: comparable(value) for key, value in body.items() if value not in (None, "")}
    if isinstance(body, str) and any(kind in body for kind in KINDS):
        return next(kind for kind in KINDS if kind in body)
    return body


def bound(binding: dict[str, Any]) -> Any:
    body = binding["body"]
    own = body["metadata"]
    annotations = {key: yaml.safe_load(text) for key, text in own["annotations"].items()}
    return (
        binding["path"],
        own["name"],
        own["namespace"],
        own["uid"],
        annotations,
        body["target"]["kind"],
        body["target"]["name"],
    )
