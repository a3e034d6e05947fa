"""``ostler health``: how devices are, and what people say of them, asked of a real keeper over a real socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from node.health.keeper import InvalidRequest
from node.health.policy import FAILED, Policy
from node.health.signal import Condition, Trouble
from node.inventory.model import SourceState, SourceStatus
from ostler.admin.health import HealthView
from ostler.cli.main import main
from protos.agent.v1alpha1 import agent_pb2
from tests.node.health.rig import A, B, C, HealthRig
from tests.ostler.cli.dra_door import serving

SOURCES = (SourceStatus("nvml", SourceState.OK), SourceStatus("kernel", SourceState.FAILED, "no uevents"))
LOST = Condition(Trouble.LOST, "it was removed from its bus")


async def health(folder: Path, rig: HealthRig, *words: str) -> int:
    view = HealthView(rig.keeper, SOURCES)
    async with serving(folder, health=view) as socket:
        return await asyncio.to_thread(main, ["health", "--socket", socket, *words])


async def test_every_device_is_a_line_with_why_since_when_and_until_when(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = HealthRig([A, B, C])
    rig.xid(A.name, 13)
    rig.xid(B.name, 95)
    assert await health(short_dir, rig) == 0
    header, first, second, third, source = capsys.readouterr().out.splitlines()
    assert header.split() == ["DEVICE", "STATE", "CAUSE", "SINCE", "ENDS", "SHOWN", "AS", "WHY"]
    since = "2023-11-14T22:13:20Z"
    assert first.split()[:7] == [A.name, "degraded", "xid", since, "by", "itself,", "2023-11-14T22:23:20Z"]
    assert first.endswith("  degraded   the driver reported XID 13 (exception in the graphics engine)")
    assert second.split()[:7] == [B.name, "unhealthy", "xid", since, "with", "a", "reset"]
    assert third.split() == [C.name, "healthy", "-", since, "-", "healthy"]
    assert source == "kernel: failed: no uevents"


async def test_faults_alone_or_one_device_can_be_asked_for(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rig = HealthRig([A, B, C])
    assert await health(short_dir, rig, "--faults") == 0
    assert capsys.readouterr().out.splitlines()[0] == "every device is healthy"
    rig.xid(B.name, 95)
    assert await health(short_dir, rig, "--faults", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    (device,) = found["devices"]
    assert (device["device"], device["state"], device["recovery"]) == (B.name, "unhealthy", "reset")
    assert (device["cause"], device["source"], device["enforced"], device["evicts"]) == ("xid", "event", True, False)
    assert [source["name"] for source in found["sources"]] == ["nvml", "kernel"]
    assert await health(short_dir, rig, "--device", A.name) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert await health(short_dir, rig, "--device", "gpu-9") == 1
    assert (
        capsys.readouterr().err == "ostler: this node has no device 'gpu-9'; 'ostler devices' lists those that it has\n"
    )


async def test_the_cause_is_named_first_and_what_else_there_is_after_it(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 48)
    rig.poll(A.name, Condition(Trouble.ROW_REMAP, "no spare rows are left", FAILED))
    assert await health(short_dir, rig, "--faults", "-o", "json") == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    also = "the driver reported XID 48 (double-bit ECC error)"
    assert (device["cause"], device["recovery"], device["reason"]) == ("row-remap", "replace", "no spare rows are left")
    assert device["also"] == [also]
    assert await health(short_dir, rig, "--faults") == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(f"  no spare rows are left; also: {also}")


async def test_a_dry_run_says_what_is_shown(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rig = HealthRig([A], Policy(dry_run=True))
    rig.xid(A.name, 95)
    assert await health(short_dir, rig) == 0
    first, _, line, *_ = capsys.readouterr().out.splitlines()
    assert first == "dry run: these states are reported and counted, and affect no pod"
    assert line.split()[:2] == [A.name, "unhealthy"]
    assert " healthy  " in line


async def test_eviction_limits_and_what_evicts_are_shown_and_an_eviction_limit_is_released(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = HealthRig([A, B, C])
    rig.look(A.name, LOST)
    rig.look(B.name, LOST)
    rig.time.forward(11)
    assert await health(short_dir, rig) == 0
    assert (
        "eviction limit for kind gpu since 2023-11-14T22:13:20Z: 2 of 3 devices of kind gpu went bad within 60 s; kept "
        f"from evicting: {A.name}, {B.name}; 'ostler health release-eviction-limit gpu' ends it\n"
    ) in capsys.readouterr().out
    assert await health(short_dir, rig, "release-eviction-limit", "gpu", "--dry-run") == 0
    assert capsys.readouterr().out.splitlines()[0] == "dry run, nothing is changed:"
    assert await health(short_dir, rig, "release-eviction-limit", "gpu") == 0
    assert capsys.readouterr().out.splitlines()[1] == f"{A.name}: evicts the pods that have it"
    assert await health(short_dir, rig) == 0
    assert "unhealthy, evicts" in capsys.readouterr().out
    assert await health(short_dir, rig, "release-eviction-limit", "toaster") == 1
    assert "'toaster' is not a kind of device" in capsys.readouterr().err


async def test_people_say_how_a_device_is_and_take_it_back(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rig = HealthRig([A, B])
    assert await health(short_dir, rig, "set", A.name, "unhealthy", "--reason", "fan", "--for", "2h", "--dry-run") == 0
    assert capsys.readouterr().out == f"dry run, nothing is changed:\n{A.name} healthy -> unhealthy (fan)\n"
    assert rig.states()[A.name] == "healthy"
    assert await health(short_dir, rig, "set", "GPU-26", "unhealthy", "--reason", "fan", "--for", "2h") == 0
    assert capsys.readouterr().out == f"{A.name} healthy -> unhealthy (fan)\n"
    assert rig.entry(A.name).until == rig.time.now + 7200
    assert await health(short_dir, rig, "clear", A.name, "--dry-run") == 0
    assert capsys.readouterr().out.endswith(f"{A.name}: the override (fan) would be cleared\n")
    assert await health(short_dir, rig, "clear", A.name) == 0
    assert capsys.readouterr().out == f"{A.name} unhealthy -> healthy\n"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (
            ["set", "gpu-9", "unhealthy", "--reason", "x"],
            1,
            "this node has no device 'gpu-9'; 'ostler devices' lists those that it has",
        ),
        (["set", A.name, "unhealthy", "--reason", " "], 1, "reason: is empty; say why, for those who look at the"),
        (["clear", A.name], 1, f"{A.name} has no override and is healthy, so there is nothing to clear"),
        (
            ["release-eviction-limit", "gpu"],
            1,
            "no eviction limit holds for kind gpu; 'ostler health' shows those that",
        ),
        (["release-brake", "gpu"], 1, "no eviction limit holds for kind gpu"),
        (["set", A.name, "degraded", "--reason", "x", "--for", "2"], 2, '--for is "2", without a unit; write 2s for'),
        (["set", A.name, "degraded", "--reason", "x", "--for", "9999h"], 2, "--for is 9999h; allowed: durations from"),
    ],
)
async def test_what_cannot_be_meant_is_refused_with_what_to_do(
    short_dir: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, text: str
) -> None:
    assert await health(short_dir, HealthRig([A, B]), *words) == code
    assert capsys.readouterr().err.startswith(f"ostler: {text}")


@pytest.mark.parametrize("state", ["sad", "unknown"])
async def test_a_state_that_is_no_override_is_refused_by_the_agent_as_well(state: str) -> None:
    view = HealthView(HealthRig([A]).keeper)
    with pytest.raises(InvalidRequest, match=f"state: must be healthy, degraded or unhealthy, not .?{state}"):
        await view.set_health(agent_pb2.SetHealthRequest(device=A.name, state=state, reason="x"))


async def test_a_word_that_a_restart_would_forget_is_told_so(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def full() -> str:
        return "health.json cannot be written: No space left on device"

    view = HealthView(HealthRig([A]).keeper, saved=full)
    words = [A.name, "unhealthy", "--reason", "case 7"]
    async with serving(short_dir, health=view) as socket:
        for more in (["--dry-run"], []):
            assert await asyncio.to_thread(main, ["health", "set", "--socket", socket, *words, *more]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        f"{A.name} healthy -> unhealthy (case 7)",
        "a restart would forget this: health.json cannot be written: No space left on device",
    ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["set", A.name, "unhealthy", "--reason", "x", "--for", ""], '--for is "", not a duration'),
        (["set", A.name, "unhealthy", "--reason", "\udcff\udcfe"], "--reason: has the byte 0xff, which is not UTF-8"),
        (["clear", "gpu\udcff"], "DEVICE: has the byte 0xff, which is not UTF-8"),
        (["clear", "é" * 501], "DEVICE: has 1002 bytes; the limit is 1000"),
    ],
)
def test_what_cannot_be_sent_to_the_agent_is_refused_with_its_place(
    short_dir: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    try:
        code: object = main(["health", *words, "--socket", str(short_dir / "none.sock")])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert problem in capsys.readouterr().err


async def test_a_device_without_a_name_is_not_every_device(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await health(short_dir, HealthRig([A]), "--device", "") == 1
    assert "this node has no device ''" in capsys.readouterr().err
