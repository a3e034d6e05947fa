"""``ostler holds``: who has what, what is withheld until when, and how a draining device is given back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from node.inventory.model import UnknownDevice
from node.ledger.holds import Hold, HoldState
from node.rules import Door
from node.values import replace
from ostler.admin.holds import HoldsView, NotReleasable
from ostler.cli.main import main
from protos.agent.v1alpha1 import agent_pb2
from protos.agent.v1alpha1.agent_pb2 import HoldsStatus
from tests.ostler.cli.dra_door import serving

SINCE = 1_700_000_000.0
POD = Hold("gpu-0", Door.PLUGIN, "team/train", SINCE, "plugin/gpu-0", state=HoldState.LISTED)
CLAIM = Hold("gpu-1", Door.DRA, "team/notebook", SINCE, "1f0c", share="s1", state=HoldState.PREPARED)
LOOKING = Hold("gpu-1", Door.DRA, "ops/watch", SINCE, "2e9d", admin=True, state=HoldState.PREPARED)
LEFT = Hold("gpu-2", None, "process 41 (python3)", SINCE, "draining/gpu-2", state=HoldState.PENDING_RELEASE)
KUBELET_FAILS = "pod resources: permission denied"
DRAINS = "pending release: process 41 (python3)"


def message(hold: Hold) -> agent_pb2.Hold:
    """A hold as the agent reports it."""
    door = "" if hold.door is None else hold.door.value
    return agent_pb2.Hold(
        door=door,
        holder=hold.holder,
        owner=hold.owner,
        since=hold.since,
        state=hold.state.value,
        share=hold.share,
        admin=hold.admin,
    )


def withheld(door: str, cause: str, why: str, waits_for: str) -> agent_pb2.Withholding:
    return agent_pb2.Withholding(door=door, cause=cause, why=why, waits_for=waits_for)


REPORT = agent_pb2.ListHoldsResponse(
    devices=[
        agent_pb2.DeviceHolds(
            device="gpu-0",
            doors="both",
            holds=[message(POD)],
            withheld=[withheld("dra", "other-door", "held through the plugin door by team/train", "team/train ends")],
            losers=["team/late"],
        ),
        agent_pb2.DeviceHolds(device="gpu-1", doors="dra", holds=[message(CLAIM), message(LOOKING)]),
        agent_pb2.DeviceHolds(
            device="gpu-2",
            doors="both",
            holds=[message(LEFT)],
            withheld=[
                withheld("plugin", "draining", DRAINS, "no process is left on it"),
                withheld("dra", "draining", DRAINS, "no process is left on it"),
            ],
        ),
        agent_pb2.DeviceHolds(
            device="gpu-3", doors="dra", withheld=[withheld("dra", "holds-unknown", "not told", "it is read")]
        ),
    ],
    status=HoldsStatus(by_plugin=1, by_dra=1, draining=1, losers=1, kubelet=KUBELET_FAILS),
)


class Holds(HoldsView):
    """Devices of which ``gpu-2`` drains."""

    def __init__(self, report: agent_pb2.ListHoldsResponse = REPORT) -> None:
        self._report = report

    def report(self) -> agent_pb2.ListHoldsResponse:
        return self._report

    async def release(self, device: str) -> tuple[str, ...]:
        if device == "gpu-2":
            return ("gpu-2: process 41 (python3) is looked for no more",)
        known = {"gpu-0": POD, "gpu-1": CLAIM, "gpu-3": None}
        if device not in known:
            raise UnknownDevice(device)
        raise NotReleasable(device, known[device])


async def holds(folder: Path, *words: str, report: agent_pb2.ListHoldsResponse = REPORT) -> int:
    async with serving(folder, holds=Holds(report)) as socket:
        return await asyncio.to_thread(main, ["holds", "--socket", socket, *words])


async def test_each_hold_is_a_line_beside_what_is_withheld(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await holds(short_dir) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    assert cells[0] == ["DEVICE", "DOOR", "HOLDER", "SINCE", "STATE", "WITHHELD FROM", "WHY", "WAITS FOR"]
    time = "2023-11-14T22:13:20Z"
    assert cells[1] == [
        *("gpu-0", "plugin", "team/train", time, "listed", "dra"),
        *("held through the plugin door by team/train", "team/train ends"),
    ]
    assert cells[2] == ["gpu-1", "dra", "team/notebook (share s1)", time, "prepared", "-"]
    assert cells[3] == ["dra", "ops/watch", time, "prepared, admin", "-"]
    assert cells[4][:6] == ["gpu-2", "-", "process 41 (python3)", time, "draining", "plugin"]
    assert cells[5][:5] == ["-", "-", "-", "-", "dra"]
    assert cells[6] == ["gpu-3", "-", "-", "-", "-", "dra", "not told", "it is read"]
    assert lines[7:] == ["gpu-0: could not be allocated to team/late", "pod resources: permission denied"]


async def test_programs_get_the_same_as_json(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await holds(short_dir, "-o", "json") == 0
    answer = json.loads(capsys.readouterr().out)
    first = answer["devices"][0]
    assert first == {
        "device": "gpu-0",
        "doors": "both",
        "holds": [
            {
                "door": "plugin",
                "holder": "team/train",
                "owner": "plugin/gpu-0",
                "since": SINCE,
                "state": "listed",
                "share": "",
                "admin": False,
                "amounts": [],
            }
        ],
        "withheld": [
            {
                "door": "dra",
                "cause": "other-door",
                "why": "held through the plugin door by team/train",
                "waits_for": "team/train ends",
            }
        ],
        "losers": ["team/late"],
    }
    assert (answer["status"]["draining"], answer["status"]["kubelet"]) == (1, "pod resources: permission denied")


async def test_one_device_is_shown_alone(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await holds(short_dir, "--device", "gpu-1", "-o", "yaml") == 0
    text = capsys.readouterr().out
    assert "gpu-1" in text
    assert "gpu-0" not in text
    assert await holds(short_dir, "--device", "gpu-9") == 1
    assert capsys.readouterr().err == (
        "ostler: device gpu-9 is neither held nor withheld from a door because of a hold\n"
    )


async def test_nothing_held_is_said_in_words(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await holds(short_dir, report=agent_pb2.ListHoldsResponse()) == 0
    text = "no device is held, and none is withheld from a door because of a hold\n"
    assert capsys.readouterr().out == text


async def test_a_draining_device_is_given_back(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await holds(short_dir, "release", "gpu-2") == 0
    assert capsys.readouterr().out == "gpu-2: process 41 (python3) is looked for no more\n"


@pytest.mark.parametrize(
    ("device", "said"),
    [
        (
            "gpu-0",
            (
                "device gpu-0 is held through the plugin door by team/train; "
                "only a device that is pending release can be released: delete the pod to get it back"
            ),
        ),
        (
            "gpu-1",
            (
                "device gpu-1 is held through the dra door by team/notebook (1f0c) as share s1; "
                "only a device that is pending release can be released: end the claim's pods to get it back"
            ),
        ),
        ("gpu-3", "device gpu-3 is not held, so there is nothing to release"),
        ("gpu-9", "this node has no device 'gpu-9'; 'ostler devices' lists those that it has"),
    ],
)
async def test_what_does_not_drain_is_refused_with_who_holds_it(
    short_dir: Path, capsys: pytest.CaptureFixture[str], device: str, said: str
) -> None:
    assert await holds(short_dir, "release", device) == 1
    assert capsys.readouterr().err == f"ostler: {said}\n"


async def test_a_standby_says_that_it_serves_nobody(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(short_dir) as socket:
        for words in (["holds", "--socket", socket], ["holds", "release", "gpu-0", "--socket", socket]):
            assert await asyncio.to_thread(main, words) == 1
            text = "ostler: this agent does not serve the kubelet yet; 'ostler status' says what it waits for\n"
            assert capsys.readouterr().err == text


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (HoldsStatus(by_plugin=2), ["devices held: 2 through the plugin door"]),
        (
            HoldsStatus(
                by_plugin=1,
                by_dra=3,
                draining=1,
                moving=2,
                losers=1,
                both="no taints",
                doors="no door",
                processes="not looked for",
            ),
            [
                (
                    "devices held: 1 through the plugin door, 3 through the DRA door, 1 pending release, 2 moving, "
                    "1 claim lost its device"
                ),
                "  no taints",
                "  no door",
                "  not looked for",
            ],
        ),
    ],
)
async def test_the_status_has_a_line_of_it_and_one_for_each_thing_that_is_amiss(
    short_dir: Path, capsys: pytest.CaptureFixture[str], status: HoldsStatus, said: list[str]
) -> None:
    async with serving(short_dir, holds=Holds(agent_pb2.ListHoldsResponse(status=status))) as socket:
        assert await asyncio.to_thread(main, ["status", "--socket", socket]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith("devices held")), len(lines))
    assert lines[begin:] == said


def test_without_an_agent_there_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "agent.sock"
    assert main(["holds", "--socket", str(path)]) == 4
    assert capsys.readouterr().err == (
        f"ostler: no agent answers at {path} (there is no such socket); start it with 'ostler run'\n"
    )


async def test_control_characters_of_a_holder_do_not_reach_the_terminal(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = replace(LEFT, holder="process 41 (\x1b[31m)")
    assert (
        await holds(
            short_dir,
            report=agent_pb2.ListHoldsResponse(
                devices=[agent_pb2.DeviceHolds(device="gpu-2", holds=[message(strange)])]
            ),
        )
        == 0
    )
    assert "\x1b" not in capsys.readouterr().out


async def test_the_pod_of_an_interface_is_named_and_why_it_is_not_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold = replace(CLAIM, device="nic-1", share="")
    places = {
        "nic-1": agent_pb2.PodInterface(pod="team/a", interface="net1"),
        "nic-2": agent_pb2.PodInterface(pod="team/b", interface="eth2", problem="interface eth2: busy"),
    }
    devices = [
        agent_pb2.DeviceHolds(device=name, doors="dra", holds=[message(replace(hold, device=name))], interface=place)
        for name, place in places.items()
    ]
    async with serving(tmp_path, holds=Holds(agent_pb2.ListHoldsResponse(devices=devices))) as socket:
        assert await asyncio.to_thread(main, ["holds", "--socket", socket]) == 0
    said = capsys.readouterr().out.splitlines()[-2:]
    assert said == [
        "nic-1: its interface is in pod team/a as net1",
        "nic-2: its interface eth2, of pod team/b, is not where it should be: interface eth2: busy",
    ]
