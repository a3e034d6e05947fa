"""Killed between any two calls of the driver or writes of the journal, no instance is lost and none is left over."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.partitions import MigLayout
from tests.making.dying import DyingProcesses
from tests.making.mig_nodes import PartitionedNode, node, shape_of
from tests.node.nvml import killed_maker, stub
from tests.node.nvml.killed_maker import LAYOUT

pytestmark = stub.needs_gcc

CLAIMED = ("3g.40gb", 4, 4)
OTHER, FOREIGN = ("1g.10gb", 0, 1), ("1g.10gb", 1, 1)
BESIDE = [OTHER, FOREIGN]
WITHOUT = {
    "nothing": [],
    "beside": BESIDE,
    "made_beside": BESIDE,
    "existing": [*BESIDE, CLAIMED],
    "empty": BESIDE,
    "several": BESIDE,
    "unused": [],
}
"""What is there once nobody has the claim."""
SCENARIOS = (
    ("nothing", "make"),
    ("beside", "make"),
    ("existing", "make"),
    ("empty", "make"),
    ("made_beside", "make"),
    ("made_beside", "remove"),
    ("several", "sweep"),
    ("unused", "leave"),
)


class Killer:
    """Runs a scenario in a process of its own each time."""

    def __init__(self, folder: Path, dying: DyingProcesses) -> None:
        self.library = stub.build(folder / "driver")
        self._dying = dying

    def run(self, folder: Path, action: str, **environment: str) -> int:
        """The process' exit code, below 0 for a signal."""
        order = {
            "library": str(self.library),
            "folder": str(folder),
            "action": action,
            "environment": {stub.VARIABLE: str(folder / "hardware.txt"), **environment},
        }
        death = self._dying.run(killed_maker.run, json.dumps(order))
        print(death.written)
        return death.code


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory, dying: DyingProcesses) -> Killer:
    return Killer(tmp_path_factory.mktemp("killer"), dying)


@pytest.mark.parametrize(("preparation", "action"), SCENARIOS)
def test_no_kill_loses_or_leaks_an_instance(
    killer: Killer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preparation: str, action: str
) -> None:
    for number, again in enumerate(killed(killer, tmp_path, monkeypatch, preparation, action)):
        check(again, preparation, wanted=number % 2 == 0 and action == "make")


@pytest.mark.parametrize("preparation", ["nothing", "divided"])
def test_no_kill_loses_or_leaks_an_instance_of_a_layout(
    killer: Killer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preparation: str
) -> None:
    others = [FOREIGN] if preparation == "divided" else []
    for again in killed(killer, tmp_path, monkeypatch, preparation, "layout"):
        assert set(others) <= set(again.existing())
        again.maker.apply_layout(again.gpu(), LAYOUT)
        profiles = [profile for profile, _, _ in again.existing()]
        assert sorted(profiles) == ["1g.10gb", "3g.40gb"]
        again.maker.apply_layout(again.gpu(), MigLayout(()))
        assert again.existing() == others
        assert again.journal.entries() == ()


def killed(
    killer: Killer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preparation: str, action: str
) -> Iterator[PartitionedNode]:
    """The next start after kills, two for each state of the files that a kill can leave: its first and last moment.

    Kills between those leave the same files, and the next start knows nothing else of a process that was killed.
    """
    prepared = prepare(killer, tmp_path, preparation)
    for number, (state, kill) in enumerate(kills(moments(killer, prepared, action))):
        folder = shutil.copytree(prepared, tmp_path / f"killed-{number}")
        assert killer.run(folder, action, **kill) == -signal.SIGKILL, kill
        assert killed_maker.state_of(folder) == state, kill
        monkeypatch.setenv(stub.VARIABLE, str(folder / "hardware.txt"))
        again = PartitionedNode(killer.library, folder)
        print(f"{preparation}, {action}, killed at {kill}")
        try:
            yield again
        finally:
            again.close()
        shutil.rmtree(folder)


def prepare(killer: Killer, folder: Path, preparation: str) -> Path:
    """The folder in which a scenario begins."""
    prepared = folder / preparation
    prepared.mkdir()
    stub.write(prepared / "hardware.txt", stub.describe(node()))
    assert killer.run(prepared, preparation) == 0
    return prepared


def moments(killer: Killer, prepared: Path, action: str) -> dict[str, list[str]]:
    """The state of the files at every moment at which a kill can be tried."""
    whole = shutil.copytree(prepared, prepared.with_name(f"{prepared.name}-{action}"))
    assert killer.run(whole, action) == 0
    found: dict[str, list[str]] = json.loads((whole / killed_maker.MOMENTS).read_text())
    assert sum(map(len, found.values())) > 5
    return found


def kills(found: dict[str, list[str]]) -> Iterator[tuple[str, dict[str, str]]]:
    """For every state its first moment and its last one."""
    at: dict[str, list[dict[str, str]]] = {}
    for kind, states in found.items():
        for number, state in enumerate(states, 1):
            at.setdefault(state, []).append({kind: str(number)})
    for state, same in at.items():
        yield state, same[0]
        yield state, same[-1]


def check(again: PartitionedNode, preparation: str, *, wanted: bool) -> None:
    """The next start: the claim is still wanted, or nobody has it any more."""
    owners = {"other"} | ({"claim"} if wanted else set())
    again.maker.sweep(frozenset(owners))
    without = sorted(WITHOUT[preparation])
    beside = sorted({OTHER, FOREIGN} & set(without))
    if wanted:
        gpu = again.gpu()
        partition = again.maker.make(gpu, shape_of(gpu, "3g.40gb", 4), "claim")
        assert again.existing() == sorted([*beside, CLAIMED])
        assert partition in again.maker.made()
        assert partition.uuid in {device.uuid for device in again.devices()}
        again.maker.remove("claim")
    assert again.existing() == without
    assert {made.owner for made in again.maker.made()} == ({"other"} if beside else set())
    if not without:
        # Nothing that is no device is left either, or the mode could not go off.
        again.maker.leave_partitioning(again.gpu())
        assert again.facts().gpus[0].mig_mode == 0


def test_scenarios_have_490_moments_and_36_states(killer: Killer, tmp_path: Path) -> None:
    found = []
    for number, (preparation, action) in enumerate(SCENARIOS):
        (tmp_path / str(number)).mkdir()
        found.append(moments(killer, prepare(killer, tmp_path / str(number), preparation), action))
    assert sum(len(states) for each in found for states in each.values()) >= 490
    assert sum(len({state for states in each.values() for state in states}) for each in found) >= 36
