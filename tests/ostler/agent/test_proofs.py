"""The proof that the Node is this machine, shared by the parts that start at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kube.bodies import JsonObject
from kube.errors import NodeNotOurs
from node.clocks import SystemClocks
from ostler.agent.api_server import PROVED, RecentProofs


def test_parts_that_start_together_read_the_node_once_and_later_ones_again() -> None:
    now, read = [100.0], list[int]()
    proofs = RecentProofs(SystemClocks(monotonic=lambda: now[0]))

    def prove() -> JsonObject:
        read.append(1)
        return {"number": len(read)}

    assert [proofs.node(prove) for _ in range(3)] == [{"number": 1}] * 3
    now[0] += PROVED
    assert proofs.node(prove) == {"number": 2}


def test_who_comes_while_the_node_is_read_waits_for_that() -> None:
    began, go, read = threading.Event(), threading.Event(), list[int]()
    proofs = RecentProofs()

    def prove() -> JsonObject:
        read.append(1)
        began.set()
        assert go.wait(60)
        return {"number": len(read)}

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(proofs.node, prove)
        assert began.wait(60)
        second = threads.submit(proofs.node, prove)
        go.set()
        assert first.result(60) == second.result(60) == {"number": 1}


def test_a_failed_proof_is_not_remembered() -> None:
    proofs = RecentProofs()

    def fail() -> JsonObject:
        raise NodeNotOurs("a", "machineID", "1", "2", "/etc/machine-id")

    for _ in range(2):
        with pytest.raises(NodeNotOurs):
            proofs.node(fail)
    assert proofs.node(lambda: {"kind": "Node"}) == {"kind": "Node"}
