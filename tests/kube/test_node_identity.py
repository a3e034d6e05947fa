"""Whether a Node is this machine, and that it is waited for."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import JsonObject
from kube.errors import KubeError, NodeNotOurs, refusal
from kube.node_identity import Machine, await_node, check_node, read_machine
from tests.kube.conftest import client_of
from tests.kube.server import AT_ONCE, CannedAnswer, StubApiServer, refused

MACHINE = Machine("0123abcd", "4C4C4544-0001")


def node(machine_id: str = "0123abcd", system_uuid: str = "4c4c4544-0001") -> JsonObject:
    info: JsonObject = {"machineID": machine_id, "systemUUID": system_uuid}
    return {"kind": "Node", "status": {"nodeInfo": info}}


def test_ids_are_read_from_the_roots_that_are_given(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("0123abcd\n")
    (tmp_path / "sys/class/dmi/id").mkdir(parents=True)
    (tmp_path / "sys/class/dmi/id/product_uuid").write_text("4C4C4544-0001\n")
    machine = read_machine(tmp_path / "etc", tmp_path / "sys")
    assert (machine.machine_id, machine.system_uuid) == ("0123abcd", "4C4C4544-0001")


@pytest.mark.parametrize("content", [None, b"", b"uninitialized\n", b"\xff"])
def test_an_id_that_is_not_there_is_empty(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "machine-id").write_bytes(content)
    assert read_machine(tmp_path, tmp_path).machine_id == ""


def test_a_folder_where_the_file_should_be_is_no_id(tmp_path: Path) -> None:
    (tmp_path / "machine-id").mkdir()
    assert read_machine(tmp_path, tmp_path).machine_id == ""


@pytest.mark.parametrize(
    ("found", "machine"),
    [
        (node(), MACHINE),
        (node("0123ABCD", "4C4C4544-0001"), MACHINE),
        (node("", ""), MACHINE),
        (node("other"), Machine("", "4c4c4544-0001")),
        (node(system_uuid="other"), Machine("0123abcd", "")),
        (node("same", "SAME"), Machine("same", "another")),
        ({}, MACHINE),
        ({"status": {"nodeInfo": {"machineID": 7, "systemUUID": None}}}, MACHINE),
    ],
    ids=["same", "case", "theirs-empty", "no-machine-id", "no-uuid", "kubelet-without-dmi", "no-status", "nonsense"],
)
def test_what_is_equal_or_unknown_passes(found: JsonObject, machine: Machine) -> None:
    check_node(found, "worker-1", machine)


def test_another_machine_is_refused_with_both_values_and_the_fix() -> None:
    with pytest.raises(NodeNotOurs) as caught:
        check_node(node("ffff"), "worker-1", MACHINE)
    assert str(caught.value) == (
        "Node worker-1 is not this machine: its status.nodeInfo.machineID is ffff, /etc/machine-id here says 0123abcd; "
        "give this node's own name as nodeName (in a pod: spec.nodeName), and in a container mount the host's "
        "/etc/machine-id over the image's"
    )
    with pytest.raises(NodeNotOurs) as caught:
        check_node(node(system_uuid="9999"), "worker-1", MACHINE)
    error = caught.value
    assert (error.node, error.field, error.theirs, error.ours) == ("worker-1", "systemUUID", "9999", "4C4C4544-0001")
    assert "/sys/class/dmi/id/product_uuid here says 4C4C4544-0001" in str(error)


def test_a_node_is_waited_for_until_it_exists_and_is_ours(server: StubApiServer) -> None:
    missing = refused(404, "NotFound", 'nodes "worker-1" not found')
    server.answers.extend([missing, missing, CannedAnswer.of(node("old")), CannedAnswer.of(node())])
    told: list[KubeError] = []
    found = await_node(
        client_of(server),
        "worker-1",
        lambda: MACHINE,
        backoff=Backoff(AT_ONCE, lambda: 0.5),
        closed=threading.Event(),
        on_failure=told.append,
    )
    assert found == node()
    assert [type(error).__name__ for error in told] == ["NotFound", "NotFound", "NodeNotOurs"]
    assert {asked.path for asked in server.asked} == {"/api/v1/nodes/worker-1"}
    assert {asked.method for asked in server.asked} == {"GET"}


def test_waiting_ends_when_closed(server: StubApiServer) -> None:
    server.respond = lambda _: refused(404, "NotFound", "no")
    closed = threading.Event()
    found = await_node(
        client_of(server),
        "worker-1",
        lambda: MACHINE,
        backoff=Backoff(AT_ONCE, lambda: 0.5),
        closed=closed,
        on_failure=lambda _: closed.set(),
    )
    assert found is None


def test_ids_that_are_none_are_shown_in_part_and_printable() -> None:
    with pytest.raises(NodeNotOurs) as caught:
        check_node(node("\ud800\x1b[31m\n" + "x" * 100_000), "worker-1", MACHINE)
    assert str(caught.value).encode().isascii()
    assert len(caught.value.theirs) == 128


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    closed = threading.Event()
    waits: list[float] = []

    class Busy:
        def get(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
            raise refusal("GET", path, 429, "TooManyRequests", "busy", retry_after=7.0)

    class Noted(Backoff):
        def delay(self, retry_after: float | None = None) -> float:
            waits.append(super().delay(retry_after))
            closed.set()
            return 0.0

    backoff = Noted(BackoffPolicy(1.0, 60.0), lambda: 0.0)
    found = await_node(Busy(), "a", lambda: MACHINE, backoff=backoff, closed=closed, on_failure=lambda _: None)
    assert found is None
    assert waits == [7.5]
