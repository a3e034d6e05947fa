"""The state files of the CPU and memory managers, as three versions of the real kubelet read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from node.kubelet import cpu_state, memory_state
from node.kubelet.cpu_state import CpuState, cpu_ranges, decode_cpus
from node.kubelet.gojson import JsonError, KubeletStateError
from node.kubelet.memory_state import MemoryBlock, MemoryState, NumaNode, decode_memory
from node.kubelet.resource_state import READERS, ResourceStateError, Since
from tests.making.recorded_cases import cases_in

_CASES = cases_in(Path(__file__).parents[2] / "vectors" / "kubelet" / "resource_managers.jsonl")
_SINCE: dict[str, Since] = {"1.35": "1.34", "1.36": "1.36", "1.37": "1.37"}
"""By the version of a recording, the first one that reads alike."""


def _read(case: dict[str, Any], since: Since) -> CpuState | MemoryState:
    text = case["text"].encode()
    return decode_cpus(text, since) if case["file"] == cpu_state.FILE_NAME else decode_memory(text, since)


def _reason(error: str) -> str:
    """The reader's own part of the error with which the kubelet ends."""
    return error.removeprefix("could not restore state from checkpoint: ").partition(", please drain")[0]


def _cpus(text: str) -> set[int]:
    return {number for begin, end in cpu_ranges(text) for number in range(begin, end + 1)}


def _data(state: CpuState | MemoryState) -> object:
    """The state in the form of the record, which does not tell null from an empty list and puts sets in order."""
    if isinstance(state, CpuState):
        entries = {
            pod: {name: _cpus(cpus) for name, cpus in (sets or {}).items()}
            for pod, sets in (state.entries or {}).items()
        }
        return {"default": _cpus(state.default), "entries": entries}
    blocks = {
        pod: {
            name: [
                {"numaAffinity": list(each.nodes or ()), "type": each.kind, "size": each.size} for each in found or ()
            ]
            for name, found in (names or {}).items()
        }
        for pod, names in (state.entries or {}).items()
    }
    return {"machine": {str(n): node and _node(node) for n, node in (state.machine or {}).items()}, "entries": blocks}


def _node(node: NumaNode) -> dict[str, Any]:
    memory = {
        kind: {
            "total": table.total,
            "systemReserved": table.system_reserved,
            "allocatable": table.allocatable,
            "reserved": table.reserved,
            "free": table.free,
        }
        for kind, table in (node.memory or {}).items()
        if table is not None
    }
    return {"numberOfAssignments": node.assignments, "memoryMap": memory, "cells": list(node.cells or ())}


def _recorded(data: dict[str, Any]) -> object:
    if "default" in data:
        entries = {pod: {n: _cpus(cpus) for n, cpus in sets.items()} for pod, sets in data["entries"].items()}
        return {"default": _cpus(data["default"]), "entries": entries}
    for node in filter(None, data["machine"].values()):
        node.update(memoryMap=node["memoryMap"] or {}, cells=node["cells"] or [])
    assigned = {pod: {name: blocks or [] for name, blocks in (n or {}).items()} for pod, n in data["entries"].items()}
    for block in (block for names in assigned.values() for blocks in names.values() for block in blocks):
        block["numaAffinity"] = block["numaAffinity"] or []
    return {"machine": data["machine"], "entries": assigned}


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["theme"] + (f" ({case['policy']})" if case else ""))
def test_every_file_is_read_or_refused_as_three_real_kubelets_do(case: dict[str, Any]) -> None:
    for version, verdict in case["kubelets"].items():
        wanted = None if verdict["error"] is None else _reason(verdict["error"])
        state, error = _outcome(case, _SINCE[version])
        if wanted is None:
            assert state is not None, (version, error)
            assert _data(state) == _recorded(verdict["data"]), version
        elif "configured policy" in wanted:
            assert state is not None, (version, error)
            assert state.policy != case["policy"]
        elif wanted == "panic":
            assert error == "panic: NUMA node 0 has no table of memory"
        elif wanted.startswith("invalid character"):
            assert error.startswith(wanted[: len("invalid character 'x'")]), version
        else:
            assert error == wanted, version


def _outcome(case: dict[str, Any], since: Since) -> tuple[CpuState | MemoryState | None, str]:
    try:
        return _read(case, since), ""
    except ResourceStateError as error:
        return None, str(error)


def _file(**members: object) -> bytes:
    return json.dumps(members).encode()


def test_a_file_with_a_wrong_checksum_still_shows_its_content_and_both_sums() -> None:
    text = _file(policyName="static", defaultCpuSet="0-3", entries={"p": {"c": "1"}}, checksum=5)
    for since in READERS:
        with pytest.raises(ResourceStateError) as caught:
            decode_cpus(text, since)
        assert (caught.value.damage, caught.value.found) == ("checksum", 5)
        assert caught.value.expected == 3745765114
        assert caught.value.content == CpuState("static", "0-3", {"p": {"c": "1"}})


@pytest.mark.parametrize("decode", [decode_cpus, decode_memory])
def test_a_refused_file_is_an_unusable_state_file_of_a_kubelet(decode: Callable[[bytes, Since], object]) -> None:
    with pytest.raises(KubeletStateError, match="unexpected end of JSON input"):
        decode(b"{", "1.37")


def test_a_form_that_no_kubelet_reads_any_more_is_told_from_damage() -> None:
    flat = _file(policyName="static", defaultCpuSet="0-3", entries={"id": "1"}, checksum=0)
    assert {since: _damage(flat, since) for since in READERS} == dict.fromkeys(READERS, "version")
    assert _damage(b"{", "1.37") == "json"
    assert _damage(_file(policyName="static", defaultCpuSet="x"), "1.36") == "content"


def _damage(text: bytes, since: Since) -> str:
    with pytest.raises(ResourceStateError) as caught:
        decode_cpus(text, since)
    return caught.value.damage


def test_sets_of_cpus_that_fill_memory_are_never_spelled_out() -> None:
    huge = "0-9223372036854775807"
    state = decode_cpus(_file(policyName="none", defaultCpuSet=huge, entries={"p": {"c": huge}}), "1.37")
    assert cpu_ranges(state.default) == ((0, (1 << 63) - 1),)
    data = json.dumps({"policyName": "none", "defaultCpuSet": "", "podEntries": {"p": {"cpuSet": huge}}})
    with pytest.raises(ResourceStateError, match="the CPUs 0-9223372036854775807 of a pod are more than 65536"):
        decode_cpus(_file(policyName="none", defaultCpuSet="", data=data, dataChecksum=1), "1.37")
    with pytest.raises(JsonError, match="value out of range"):
        cpu_ranges("9" * 5000)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (CpuState("static", "0,4", {"p": {"c": "1-3"}}), ""),
        (CpuState("static", "", {}), ""),
        (CpuState("static", "", {"p": {"c": "1"}}), "none is left in the default set"),
        (CpuState("static", "0-3", {"p": {"c": "3-5"}}), "container c of pod p has the CPUs 3-5, and some of them are"),
        (CpuState("none", "0-3", {"p": {"c": "3-5"}}), ""),
    ],
)
def test_cpus_that_a_static_policy_refuses_on_every_machine(state: CpuState, said: str) -> None:
    assert said in cpu_state.contradiction(state)
    assert bool(said) is bool(cpu_state.contradiction(state))


def test_memory_that_a_static_policy_refuses_on_every_machine() -> None:
    entries = {"p": {"c": (MemoryBlock((0,), "memory", 1),)}}
    assert "the file has no NUMA node" in memory_state.contradiction(MemoryState("Static", {}, entries))
    assert not memory_state.contradiction(MemoryState("Static", {0: NumaNode()}, entries))
    assert not memory_state.contradiction(MemoryState("None", {}, entries))
