"""The commands with input that nobody should give them: an answer or one clear error, no traceback, no codes."""

from __future__ import annotations

import copy
import errno
import io
import json
import os
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node import named_files
from ostler.cli.main import main
from ostler.explain import files
from scheduling.explain.state import BadInput
from tests.making.clusters import (
    GPU,
    GPU_CLASS,
    MODEL,
    NIC,
    NIC_CLASS,
    Object,
    claim,
    device,
    gpus,
    holder,
    match,
    node,
    pod,
    request,
    resource_slice,
    thing,
    write,
)


def partition(name: str, memory: str) -> Object:
    more = {
        "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}],
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
        "bindingConditions": ["a"],
        "bindingFailureConditions": ["b"],
        "bindsToNode": True,
    }
    return device(name, model="A", root="pci0", more=more)


def cluster() -> list[Object]:
    """One object of every kind, with most fields that there are."""
    limits = {"default": "1G", "validRange": {"min": "1G", "max": "8G", "step": "1G"}}
    bandwidth = {"bandwidth": {"value": "10G", "requestPolicy": limits}}
    nic = device("nic-0", root="pci0", more={"allowMultipleAllocations": True, "capacity": bandwidth})
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-b"]}
    named = {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}
    zone = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "Gt", "values": ["1"]}]}]}
    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    two = {"resourceSliceCount": 2}
    alternatives = [
        {"name": "l", "deviceClassName": GPU, "allocationMode": "ExactCount", "count": 1, "selectors": []},
        {"name": "m", "deviceClassName": GPU, "allocationMode": "All"},
    ]
    asked = claim(
        request("gpu", GPU, 2, f'{MODEL} == "C"', tolerations=[{"key": "k", "operator": "Exists"}]),
        request("nic", NIC, 1, capacity={"requests": {"bandwidth": "4G"}}),
        {"name": "alt", "firstAvailable": alternatives},
        constraints=[match("resource.kubernetes.io/pcieRoot", "gpu", "nic"), {"distinctAttribute": "x/y"}],
    )
    references = [
        {"name": "a", "resourceClaimName": "train"},
        {"name": "b", "resourceClaimTemplateName": "made"},
    ]
    return [
        node("node-a", taints=[{"key": "t", "effect": "NoSchedule"}]),
        node("node-b"),
        GPU_CLASS,
        NIC_CLASS,
        resource_slice("node-a", [], name="counters", pool=two, sharedCounters=counters),
        resource_slice("node-a", [partition("mig-0", "40Gi"), partition("mig-1", "20Gi")], name="parts", pool=two),
        resource_slice("node-b", gpus(2, model="B", root="pci1"), nodeName=None, nodeSelector=named),
        resource_slice("node-a", [nic], driver=NIC),
        resource_slice(
            "net", [device("x", more={"nodeName": "node-b"})], NIC, nodeName=None, perDeviceNodeSelection=True
        ),
        holder("node-a", "mig-0"),
        asked,
        thing("ResourceClaimTemplate", "made", {"spec": claim(request())["spec"]}, namespace="team"),
        thing(
            "DeviceTaintRule",
            "rule",
            {"deviceSelector": {"driver": GPU}, "taint": {"key": "r", "value": "1", "effect": "NoExecute"}},
        ),
        pod(
            resourceClaims=references,
            nodeSelector={"zone": "x"},
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": zone}},
            containers=[{"name": "c", "resources": {"limits": {"example.com/gpu": "2"}}}],
        ),
    ]


PLAIN = cluster()
JUNK: list[Any] = [
    None, True, False, 0, -1, 10**30, -(10**30), 1.5, 1e308, "", "x", "\x1b[1m", "\x9b1m", "\u202e", "\ud800", "1e400",
    "1Gi", "-5", "9" * 400, "2026-13-45T99:99", "a/b/c", "[", [], [[]], [None], [1], ["x"], {}, {"a": 1},
    {"name": "x"}, {"x": {"y": {}}}, "In", "All", "Exists", "device.x", "size([1]) == 1", 'device.attributes["a"].b.c',
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


PLACES = [(number, path) for number, body in enumerate(PLAIN) for path in places(body)]


@st.composite
def spoiled(draw: st.DrawFn) -> list[Object]:
    """The cluster with a few values replaced, taken out or doubled."""
    objects = copy.deepcopy(PLAIN)
    for number, path in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        try:
            holds: Any = objects[number]
            for key in path[:-1]:
                holds = holds[key]
            how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "double"]))
            if how == "replace":
                holds[path[-1]] = copy.deepcopy(draw(st.sampled_from(JUNK)))
            elif how == "remove":
                del holds[path[-1]]
            elif isinstance(holds, list):
                holds.append(copy.deepcopy(holds[path[-1]]))
        except (KeyError, IndexError, TypeError):
            continue  # An earlier change took the place away.
    return objects


def outcome(words: list[str]) -> tuple[int, str]:
    """Exit code, and all that was written to a terminal's encoding."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors, write_through=True) for errors in ("strict", "strict"))
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return code, (out.buffer.getvalue() + err.buffer.getvalue()).decode()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "cluster.json"


WAYS = (
    ["explain", "pod/train-0", "-n", "team", "--all-nodes"],
    ["explain", "claim/train", "-n", "team", "-o", "json"],
    ["snapshot", "--anonymise-nodes", "-o", "/dev/null"],
)


@settings(max_examples=60, deadline=None)
@given(objects=spoiled(), way=st.sampled_from(WAYS))
def test_no_object_makes_a_traceback_or_steers_the_terminal(path: Path, objects: list[Object], way: list[str]) -> None:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    code, printed = outcome([*way, "--from", str(path)])
    assert code in (0, 1, 2)
    assert printed.replace("\n", "").isprintable()
    if code == 2:
        assert printed.startswith("ostler: ")


def test_names_in_errors_cannot_steer_the_terminal(tmp_path: Path) -> None:
    source = write(tmp_path, node("\x1b[31mred\x9b"), GPU_CLASS, claim(request()))
    code, printed = outcome(["explain", "claim/train", "-n", "team", "--from", source, "--node", "b\x1b]0;x\x07"])
    assert (code, printed) == (2, "ostler: there is no node b\\x1b]0;x\\x07; known nodes: \\x1b[31mred\\x9b\n")


def test_values_in_json_cannot_steer_the_terminal_and_stay_what_they_are(tmp_path: Path) -> None:
    model = "\x9b31mred\u202e"
    source = write(tmp_path, node("node-a"), GPU_CLASS, resource_slice("node-a", gpus(1, model=model)), claim(
        request("gpu", GPU, 1, f'{MODEL} == "B"')))  # fmt: skip
    _, printed = outcome(["explain", "claim/train", "-n", "team", "--from", source, "-o", "json"])
    assert printed.replace("\n", "").isprintable()
    (obstacle,) = json.loads(printed)["groups"][0]["requests"][0]["obstacles"]
    assert json.loads(obstacle["values"][0]["value"]) == model


def test_half_a_character_is_replaced_as_the_api_server_does(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '{"apiVersion":"v1","kind":"Node","metadata":{"name":"a","labels":{"\\uD800":"x\\udc00\\ud83d\\ude00"}}}'
    )
    (body,) = files.read_files([str(tmp_path / "a.json")]).state.nodes
    assert body["metadata"]["labels"] == {"\ufffd": "x\ufffd\U0001f600"}  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    "words",
    [["explain", "claim/train", "-n", "team"], ["explain", "claim/train", "-n", "team", "-o", "json"], ["snapshot"]],
)
def test_output_that_cannot_be_written_is_one_error(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path, *PLAIN)
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert main([*words, "--from", source]) == 1
        monkeypatch.undo()
    error = capsys.readouterr().err
    assert error.endswith(f"ostler: standard output cannot be written: {os.strerror(errno.ENOSPC)}\n")


def test_a_pipe_that_nobody_writes_into_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_files, "WRITER_WAIT", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match=r"pipe: cannot be read \(no process writes into this pipe\)"):
        files.read_files([str(tmp_path / "pipe")])


@pytest.mark.parametrize("text", ["", "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"])
def test_a_slow_or_silent_writer_is_waited_for(tmp_path: Path, text: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(text,))
    writer.start()
    assert len(files.read_files([str(tmp_path / "pipe")]).state.nodes) == bool(text)
    writer.join()


def test_a_loop_of_links_is_an_error_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(BadInput, match=r"loop\.yaml: cannot be read \(Too many levels of symbolic links\)"):
        files.read_files([str(tmp_path / "loop.yaml")])


def test_after_very_many_faults_no_more_are_looked_for(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{}] * 100_000))
    with pytest.raises(BadInput) as caught:
        files.read_files([str(tmp_path / "a.json")])
    assert len(caught.value.faults) == 1000
    assert str(caught.value).endswith("\nand at least 980 more")
