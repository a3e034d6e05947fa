"""Compute modes are as they were when MPS ends, whatever happens in between, and are on record until then."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from node.files import JsonValue, write_record
from node.inventory.nvidia.compute_modes import DEFAULT, EXCLUSIVE_PROCESS
from node.mps import modes
from node.mps.daemon import MpsError, MpsResource
from node.mps.modes import ExclusiveModes, MpsRecord
from node.mps.reports import FAILED
from node.mps.service import MpsHolders
from tests.making.mps_node import GPUS, NAME, NOBODY, OTHER, RESOURCE, MpsNode, is_clean, until


async def test_a_mode_that_cannot_be_set_withholds_the_devices_and_changes_nothing(node: MpsNode) -> None:
    node.modes.fault = "the agent lacks the right"
    async with node.agent(RESOURCE) as supervisor:
        with pytest.raises(MpsError, match="compute mode of GPU-0: the agent lacks the right"):
            await supervisor.ready(NAME)
        assert node.driver.log(NAME) == []
        await until(lambda: not node.path.exists())
    assert node.pid is None


async def test_of_two_gpus_the_one_that_was_changed_is_set_back_if_the_other_cannot_be(node: MpsNode) -> None:
    del node.modes.modes["GPU-1"]
    async with node.agent(RESOURCE) as supervisor:
        with pytest.raises(MpsError, match="compute mode of GPU-1: the driver no longer knows the GPU"):
            await supervisor.ready(NAME)
        await until(lambda: node.modes.modes["GPU-0"] == DEFAULT)


async def test_the_mode_that_a_gpu_had_comes_back(node: MpsNode) -> None:
    node.modes.modes["GPU-1"] = 2
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        assert node.modes.modes["GPU-1"] == EXCLUSIVE_PROCESS
        supervisor.hold(NOBODY)
        await until(lambda: node.pid is None and not node.path.exists())
    assert node.modes.modes == {"GPU-0": DEFAULT, "GPU-1": 2, "GPU-2": DEFAULT}


async def test_what_a_killed_agent_left_is_set_back_by_the_next(node: MpsNode) -> None:
    record = MpsRecord(node.path)
    record.modes = {"GPU-0": DEFAULT, "GPU-2": DEFAULT}
    record.write()
    node.modes.modes.update({"GPU-0": EXCLUSIVE_PROCESS, "GPU-2": EXCLUSIVE_PROCESS})
    async with node.agent(RESOURCE):
        await until(lambda: node.modes.modes["GPU-2"] == DEFAULT)
        await until(lambda: is_clean(node))


@pytest.mark.parametrize(("uuid", "whose"), [("GPU-2", "MPS of an earlier agent"), ("GPU-0", NAME)])
async def test_a_mode_of_before_that_cannot_be_set_back_is_told_at_the_start(
    node: MpsNode, uuid: str, whose: str
) -> None:
    record = MpsRecord(node.path)
    record.modes = {uuid: DEFAULT}
    record.write()
    node.modes.modes[uuid] = EXCLUSIVE_PROCESS
    node.modes.fault = "the agent lacks the right"
    async with node.agent(RESOURCE) as supervisor:
        supervisor.hold(NOBODY)
        await until(lambda: bool(node.events))
    text = f"{uuid} stays in compute mode EXCLUSIVE_PROCESS, not DEFAULT: the agent lacks the right"
    assert node.events == [(FAILED, f"{whose}: {text}")]


async def test_a_damaged_record_is_set_aside(node: MpsNode) -> None:
    node.path.write_text("{")
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
    assert (node.path.parent / "mps.json.damaged-1").exists()


def test_what_is_written_last_is_what_was_known_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two resources write their common record at the same time, in threads."""
    record, slow, written = MpsRecord(tmp_path / "mps.json"), threading.Event(), threading.Event()

    def write(path: Path, schema: str, data: JsonValue) -> None:
        if not slow.is_set():
            slow.set()
            written.wait(0.3)  # Until the other one has been written, if it may be.
        write_record(path, schema, data)

    monkeypatch.setattr(modes, "write_record", write)
    record.modes["GPU-0"] = DEFAULT
    first = threading.Thread(target=record.write)
    first.start()
    assert slow.wait(20)
    record.modes["GPU-1"] = DEFAULT
    record.write()
    written.set()
    first.join()
    found = MpsRecord(tmp_path / "mps.json")
    found.read()
    assert found.modes == {"GPU-0": DEFAULT, "GPU-1": DEFAULT}


async def test_a_claims_daemon_waits_until_that_of_a_resource_has_given_its_gpu_back(node: MpsNode) -> None:
    node.modes.modes["GPU-0"] = 2
    gpus, claims = ExclusiveModes(node.modes), MpsRecord(node.path.with_name("mps-claims.json"))
    resources = MpsRecord(node.path)
    await gpus.take(NAME, resources, ["GPU-0", "GPU-1"])
    taking = asyncio.create_task(gpus.take("claim-1", claims, ["GPU-0"]))
    await gpus.give_back(NAME, resources, ["GPU-1"])
    assert not taking.done()
    assert node.modes.modes == {"GPU-0": EXCLUSIVE_PROCESS, "GPU-1": DEFAULT, "GPU-2": DEFAULT}
    await gpus.give_back(NAME, resources, ["GPU-0"])
    await taking
    assert (claims.modes, resources.modes) == ({"GPU-0": 2}, {})
    assert node.modes.modes["GPU-0"] == EXCLUSIVE_PROCESS
    await gpus.give_back(NAME, resources, ["GPU-0"])
    assert node.modes.modes["GPU-0"] == EXCLUSIVE_PROCESS, "it is not the resource's any more"
    await gpus.give_back("claim-1", claims, ["GPU-0"])
    assert node.modes.modes["GPU-0"] == 2


async def test_a_daemon_that_waits_in_vain_for_a_gpu_says_for_which_other_one(node: MpsNode) -> None:
    gpus, record = ExclusiveModes(node.modes, patience=0.05), MpsRecord(node.path)
    record.modes = {"GPU-0": DEFAULT}
    gpus.keep(NAME, record, ["GPU-0", "GPU-1"])
    with pytest.raises(MpsError) as refused:
        await gpus.take("claim-1", MpsRecord(node.path.with_name("mps-claims.json")), ["GPU-0"])
    assert str(refused.value) == (
        f"GPU-0 still belongs to the MPS control daemon of {NAME}, which ends with its last share; 'ostler holds' says "
        "who has one"
    )


async def test_a_mode_that_could_not_be_set_back_is_set_back_after_the_next_daemon(node: MpsNode) -> None:
    gpus, record, claims = ExclusiveModes(node.modes), MpsRecord(node.path), MpsRecord(node.path.with_name("c.json"))
    await gpus.take(NAME, record, ["GPU-0"])
    node.modes.fault = "the agent lacks the right"
    with pytest.raises(MpsError, match="GPU-0 stays in compute mode EXCLUSIVE_PROCESS, not DEFAULT"):
        await gpus.give_back(NAME, record, ["GPU-0"])
    node.modes.fault = ""
    await gpus.take("claim-1", claims, ["GPU-0"])
    await gpus.give_back("claim-1", claims, ["GPU-0"])
    assert node.modes.modes["GPU-0"] == DEFAULT


async def test_a_resource_that_is_renamed_waits_for_the_daemon_of_its_former_name(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.use((MpsResource(OTHER, GPUS),))
        supervisor.hold(MpsHolders({OTHER: ("team/c",)}, known=True))
        await supervisor.ready(OTHER)
        assert list(node.pids) == [OTHER]
        assert node.modes.modes["GPU-0"] == EXCLUSIVE_PROCESS
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))
