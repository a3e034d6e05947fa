"""``ostler sandbox`` as a newcomer meets it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def sandbox(*words: str, typed: str = "", code: int = 0) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "ostler", "sandbox", *words],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("name", ["h100-sxm-8", "a100-mig-4", "l4-2"])
def test_once_prints_the_whole_tour_as_json_and_nothing_else(name: str) -> None:
    out, err = sandbox("--node", name, "--once")
    assert err == ""
    tour = json.loads(out)
    assert list(tour) == [
        "node", "devices", "resources", "capacity", "allocations", "refused", "failure", "recovery",
    ]  # fmt: skip
    assert tour["node"] == name
    assert all(each["admitted"] and each["container"]["envs"] for each in tour["allocations"])
    assert tour["refused"]["admitted"] is False
    resource = tour["allocations"][0]["resource"]
    assert tour["failure"]["allocatable"][resource] < tour["failure"]["allocatable_before"][resource]
    assert tour["recovery"]["allocatable"] == tour["failure"]["allocatable_before"]


def test_the_prompt_takes_commands_until_quit() -> None:
    typed = "\n".join(
        ["", "help", "devices", "status", "capacity", "give nvidia.com/gpu 1", "pods", "fail 0", "fail 99", "heal 0",
         "give nvidia.com/gpu", "end pod-3", "end pod-9", "fly", 'give "', "restart-kubelet", "kill-agent", "log",
         "quit"]
    )  # fmt: skip
    out, _ = sandbox("--node", "l4-2", typed=typed + "\n")
    assert "== The agent found these devices" in out
    assert "== A pod that asks for more than there is, is refused" in out
    assert "pod-3: 1 nvidia.com/gpu: GPU-" in out
    assert "no GPU '99' on this node; known: GPU-" in out
    assert "usage: give RESOURCE COUNT" in out
    assert "no pod 'pod-9' holds devices" in out
    assert "no command 'fly'; 'help' lists them" in out
    assert "No closing quotation" in out
    assert "restarted; every resource is registered again" in out
    assert "killed and started again; every resource is registered again" in out


def test_an_unknown_node_is_told_with_the_known_ones() -> None:
    _, err = sandbox("--node", "z80", code=2)
    assert err == (
        "ostler: no shipped node is called 'z80'; known: a100-mig-4, h100-sxm-8, l4-2, 'here' for this machine, or "
        "the path of a recording\n"
    )


def test_a_missing_recording_is_told() -> None:
    _, err = sandbox("--node", "/nonexistent/node.yaml", code=1)
    assert "/nonexistent/node.yaml" in err


def test_this_machine_is_shown_as_it_is() -> None:
    out, _ = sandbox("--node", "here", "--once")
    assert json.loads(out)["node"] == "here"


def test_an_agent_that_cannot_start_is_told_with_its_log(tmp_path: object) -> None:
    _, err = sandbox("--config", "/nonexistent.yaml", "--once", code=1)
    assert "the agent ended with exit code 3; the end of its log" in err
    assert "/nonexistent.yaml" in err
