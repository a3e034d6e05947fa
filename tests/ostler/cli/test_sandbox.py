"""``ostler sandbox`` as a newcomer meets it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from sandbox.nodes import names
from tests.making.tours import sandbox, tour_of
from tests.sandbox.sessions import SESSIONS, session
from tests.waiting import until

STEPS = ["node", "devices", "topology", "resources", "capacity", "allocations", "refused", "failure", "recovery"]
CLAIM_STEPS = ["slices", "claim", "claim_failure", "claim_recovery", "released", "holds", "withdrawn", "offered_again"]
GPU_STEPS = [*CLAIM_STEPS, "shares"]


def checked_tour(name: str, run_dir: Path) -> dict[str, Any]:
    tour = tour_of(name, run_dir)
    assert tour["node"] == name
    assert all(each["admitted"] and each["container"]["envs"] for each in tour["allocations"])
    assert tour["refused"]["admitted"] is False
    return tour


def check_failure(tour: dict[str, Any], resource: str) -> None:
    assert tour["failure"]["allocatable"][resource] < tour["failure"]["allocatable_before"][resource]
    assert tour["recovery"]["allocatable"] == tour["failure"]["allocatable_before"]


def check_claim(tour: dict[str, Any]) -> None:
    """A claim beside a device plugin's allocation, of different GPUs, and nothing of it left."""
    pod = tour["claim"]
    assert pod["phase"] == "Running", pod
    ([device],) = pod["claims"].values()
    containers = pod["containers"]
    ours, theirs = containers["main"]["injected"]["deviceNodes"], containers["plugin"]["devices"]
    nodes = {node["path"] for node in ours}, {node["container_path"] for node in theirs}
    gpus = [{path for path in paths if path[-1].isdigit()} for paths in nodes]
    assert [len(each) for each in gpus] == [1, 1]
    assert not gpus[0] & gpus[1]
    broken, healed = tour["claim_failure"], tour["claim_recovery"]
    name = device.rpartition("/")[2]
    assert broken["taints"][name] == ["ostler.dev/health=unhealthy:NoSchedule"]
    assert [each["health"] for each in broken["podStatus"]["claim:devices"]] == ["Unhealthy"]
    assert name not in healed["taints"]
    assert [each["health"] for each in healed["podStatus"]["claim:devices"]] == ["Healthy"]
    assert tour["released"] == {"claims": [], "specs": []}


@pytest.mark.parametrize("name", ["a100-mig-4", "l4-2"])
def test_once_prints_the_whole_tour_as_json_and_nothing_else(name: str, run_dir: Path) -> None:
    tour = checked_tour(name, run_dir)
    assert [key for key in tour if key not in ("pairs", "health")] == STEPS + GPU_STEPS
    assert list(tour).index("health") == list(tour).index("claim_failure") + 1
    check_failure(tour, "nvidia.com/gpu")
    check_claim(tour)
    assert tour["failure"]["part"].startswith("GPU ")


@pytest.mark.parametrize(("name", "proximity"), [("h100-sxm-8", "PXB"), ("vm-flat-8", "PIX")])
def test_a_pod_gets_a_gpu_and_the_nic_that_is_near_it(name: str, proximity: str, run_dir: Path) -> None:
    """On the virtual machine only its override file tells what is near."""
    tour = checked_tour(name, run_dir)
    steps = [key for key in tour if key != "health"]
    # The GPUs of the virtual machine change their MIG mode with a reset only.
    partition = ["partition"] if name == "h100-sxm-8" else []
    assert steps == [*STEPS, "pairs", *GPU_STEPS, *partition, "claim_pair", "islands"]
    check_claim(tour)
    *whole, waiting = tour["islands"]
    assert whole
    assert all([len(devices) for devices in each["claims"].values()] == [4] for each in whole)
    assert waiting["message"] == "0/1 nodes are available: 1 cannot allocate all claims"
    assert "GPU0" in tour["topology"][0]
    assert "NIC0" in tour["topology"][0]
    for pair in tour["pairs"]:
        assert list(pair["devices"]) == ["nvidia.com/gpu", "ostler.dev/rdma"]
        assert pair["proximity"] == proximity
        assert {"NVIDIA_VISIBLE_DEVICES", "PCIDEVICE_OSTLER_DEV_RDMA"} <= pair["container"]["envs"].keys()
    check_failure(tour, "nvidia.com/gpu")


def test_a_node_without_gpus_offers_its_nics_and_a_port_goes_down(run_dir: Path) -> None:
    tour = checked_tour("sriov-2", run_dir)
    assert list(tour) == STEPS + CLAIM_STEPS
    assert tour["capacity"] == {
        "ostler.dev/nic": {"capacity": 14, "allocatable": 11},
        "ostler.dev/roce": {"capacity": 11, "allocatable": 11},
    }
    assert tour["failure"]["part"] == "NIC ens1f0np0"
    check_failure(tour, "ostler.dev/nic")
    assert tour["failure"]["allocatable"] == {"ostler.dev/nic": 7, "ostler.dev/roce": 7}


def test_single_names_mig_devices_as_gpus_and_offers_no_nics() -> None:
    out, _ = sandbox("--node", "l4-2", "--mig-strategy", "single", "--once")
    assert json.loads(out)["capacity"] == {"nvidia.com/gpu": {"capacity": 2, "allocatable": 2}}


def test_none_offers_gpus_cut_into_instances_as_gpus() -> None:
    out, _ = sandbox("--node", "a100-mig-4", "--mig-strategy", "none", "--once")
    assert set(json.loads(out)["capacity"]) == {"nvidia.com/gpu", "ostler.dev/nic", "ostler.dev/rdma"}


def test_the_prompt_takes_commands_until_quit() -> None:
    typed = "\n".join(
        ["", "help", "devices", "status", "capacity", "topology", "topology tree", "topology svg",
         "give nvidia.com/gpu 1", "pods", "give nvidia.com/gpus 1", "give nvidia.com/gpu 0",
         "fail 0", "fail 99", "heal 0", "give nvidia.com/gpu", "end pod-6",
         "end pod-9", "fly", 'give "', "restart-kubelet", "kill-agent", "log", "quit"]
    )  # fmt: skip
    out, _ = sandbox("--node", "l4-2", typed=typed + "\n")
    assert "== The agent found these devices" in out
    assert "== How close they are to each other" in out
    assert "== A pod that asks for more than is available is refused" in out
    assert "pod-6: 1 nvidia.com/gpu: GPU-" in out
    assert "no GPU or NIC '99' on this node; known: 0, 1, eno8303, eno8403" in out
    assert out.count("usage: give RESOURCE COUNT") == 2
    assert (
        "the kubelet has no resource 'nvidia.com/gpus'; it has: nvidia.com/gpu, nvidia.com/gpu.shared, ostler.dev/nic\n"
        in out
    )
    assert "\nostler>    l4-2\n   └─ NUMA node 0\n" in out
    assert "usage: topology [tree]" in out
    assert "there is no pod 'pod-9'" in out
    assert "no command 'fly'; 'help' lists them" in out
    assert "No closing quotation" in out
    assert "restarted; every resource is registered again" in out
    assert "killed and started again; every resource is registered again" in out


def test_nics_break_at_the_prompt_too(run_dir: Path) -> None:
    said = session("nics", run_dir).said("nics")
    assert "1 ostler.dev/roce: 0000:17:00.2; 2 ostler.dev/nic: 0000:17:00.6, 0000:17:00.7" in said
    assert "nic-0000-17-00-6 changed: linkUp true -> false" in said
    assert "NIC 0000:17:00.6 has no link of its own; it goes down with its port 0000:17:00.0" in said
    assert "nic-0000-17-00-2 changed: inPod none -> true" in said
    assert "nic-0000-b1-01-7" in said
    assert said.count("taint ostler.dev/gone:NoSchedule\n") == 8
    assert "ostler.dev/roce:\n     capacity: 11\n     allocatable: 7\n" in said
    assert "ostler.dev/nic:\n     capacity: 14\n     allocatable: 7\n" in said


@pytest.mark.parametrize(("words", "code"), [(["--once"], 1), ([], 0)], ids=["once", "prompt"])
def test_a_signal_ends_the_agent_too(words: list[str], code: int) -> None:
    command = [sys.executable, "-m", "ostler", "sandbox", "--node", "l4-2", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        found = until(lambda: agents(started.pid), "the agent runs")
        folders = {Path(name) for each in found for name in FOLDER.findall((each / "cmdline").read_text())}
        started.send_signal(signal.SIGTERM)
        started.communicate(timeout=240)
    assert started.returncode == code
    assert not [agent for agent in found if agent.exists()]
    assert [folder.exists() for folder in folders] == [False], "the sandbox's folder goes with it"


FOLDER = re.compile("/tmp/ostler-[a-z0-9_]+")


def agents(parent: int) -> list[Path]:
    """The processes of ostler's that this one has started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [process for process in map(Path("/proc").joinpath, children) if b"\0run\0" in command_of(process)]


def command_of(process: Path) -> bytes:
    """Its command line; empty for a process that has ended."""
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_an_unknown_node_is_told_with_the_known_ones() -> None:
    _, err = sandbox("--node", "z80", code=2)
    assert err == (
        f"ostler: no shipped node is called 'z80'; known: {', '.join(names())}, 'here' for this machine, or "
        "the path of a recording\n"
    )


def test_a_missing_recording_is_told() -> None:
    _, err = sandbox("--node", "/nonexistent/node.yaml", code=1)
    assert "/nonexistent/node.yaml" in err


def test_this_machine_is_shown_as_it_is() -> None:
    out, _ = sandbox("--node", "here", "--once")
    assert json.loads(out)["node"] == "here"


def test_an_agent_that_cannot_start_is_told_with_its_log(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The node's folder stays after a failure, for its log.
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(short_dir))
    _, err = sandbox("--config", "/nonexistent.yaml", "--once", code=1)
    assert "the agent ended with exit code 3; the end of its log" in err
    assert "/nonexistent.yaml" in err


@pytest.mark.parametrize("name", ["nothing", "verbose"])
def test_the_prompt_reads_a_file_and_ends_with_it(name: str, run_dir: Path) -> None:
    """/dev/null too; neither can be waited on. That it ends well, with a prompt, holds for every session."""
    read = session(name, run_dir)
    assert SESSIONS[name].by_file
    assert "\nThe node keeps running in /tmp/ostler-" in read.story
    assert ("phase: Running" in "".join(map(read.said, read.scenes))) is (name == "verbose")
