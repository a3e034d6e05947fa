"""The process ends between any two steps: nothing is lost, nothing is allocated twice, the next start converges."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from driver.claims.contracts import ClaimStep
from driver.claims.model import RecordState, Unavailable
from driver.claims.service import ClaimService
from driver.names import MetadataVersion
from tests.making.claim_service import GPU0, GPU1, ClaimNode, DieAt, Killed, claim, reference, result
from tests.making.dying import DyingProcesses

VERSIONS = (MetadataVersion.V1BETA1,)
"""With metadata files, since these make the most steps."""
PREPARING = [step for step in ClaimStep if step.value.startswith("prepare")]
RELEASING = [step for step in ClaimStep if step.value.startswith("unprepare")]
BEFORE_ANYTHING = (ClaimStep.FETCHED, ClaimStep.TAKEN)
EXIT = 77


@pytest.fixture
def node(tmp_path: Path) -> ClaimNode:
    """A node whose claims get metadata files."""
    return _node(tmp_path)


def _node(root: Path) -> ClaimNode:
    node = ClaimNode(root)
    node.with_options(metadata_versions=VERSIONS)
    return node


async def _killed(service: ClaimService, *, preparing: bool) -> None:
    with pytest.raises(Killed):
        await (service.prepare(reference()) if preparing else service.unprepare(reference()))


@pytest.mark.parametrize("step", PREPARING)
async def test_after_a_kill_while_preparing_the_kubelet_gets_its_answer(node: ClaimNode, step: ClaimStep) -> None:
    node.reader.put(claim(1, result(GPU0), result(GPU1)))
    await _killed(await node.started(steps=DieAt(step)), preparing=True)
    service = await node.started()
    answer = await service.prepare(reference())
    assert [device.device for device in answer] == [GPU0, GPU1]
    assert node.spec(1) is not None
    _check_whole(node, service)


@pytest.mark.parametrize("step", PREPARING)
async def test_after_a_kill_while_preparing_nobody_else_gets_the_devices(node: ClaimNode, step: ClaimStep) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    await _killed(await node.started(steps=DieAt(step)), preparing=True)
    service = await node.started()
    if step in BEFORE_ANYTHING:
        assert len(await service.prepare(reference(2))) == 1
    else:
        with pytest.raises(Unavailable, match="held through the dra door by default/claim-1"):
            await service.prepare(reference(2))
        await service.unprepare(reference(1))
        assert len(await service.prepare(reference(2))) == 1
    _check_whole(node, service)


@pytest.mark.parametrize("step", PREPARING)
async def test_after_a_kill_while_preparing_a_release_leaves_nothing(node: ClaimNode, step: ClaimStep) -> None:
    node.reader.put(claim(1, result(GPU0)))
    await _killed(await node.started(steps=DieAt(step)), preparing=True)
    service = await node.started()
    await service.unprepare(reference())
    _check_empty(node, service)


@pytest.mark.parametrize("step", PREPARING)
async def test_after_a_kill_while_preparing_a_claim_that_is_gone_is_collected(node: ClaimNode, step: ClaimStep) -> None:
    node.reader.put(claim(1, result(GPU0)))
    await _killed(await node.started(steps=DieAt(step)), preparing=True)
    node.reader.drop(1)
    node.kubelet_knows()
    service = await node.started()
    await service.collect()
    _check_empty(node, service)


@pytest.mark.parametrize("step", RELEASING)
async def test_after_a_kill_while_releasing_the_kubelet_releases_again(node: ClaimNode, step: ClaimStep) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    await (await node.started()).prepare(reference())
    await _killed(await node.started(steps=DieAt(step)), preparing=False)
    service = await node.started()
    await service.unprepare(reference())
    _check_empty(node, service)
    assert len(await service.prepare(reference(2))) == 1


@pytest.mark.parametrize("step", RELEASING)
async def test_after_a_kill_while_releasing_a_claim_that_nobody_knows_is_collected(
    node: ClaimNode, step: ClaimStep
) -> None:
    node.reader.put(claim(1, result(GPU0)))
    await (await node.started()).prepare(reference())
    await _killed(await node.started(steps=DieAt(step)), preparing=False)
    node.reader.drop(1)
    node.kubelet_knows()
    service = await node.started()
    await service.collect()
    _check_empty(node, service)


@pytest.mark.parametrize("step", RELEASING)
async def test_after_a_kill_while_releasing_the_claim_can_be_prepared_again(node: ClaimNode, step: ClaimStep) -> None:
    node.reader.put(claim(1, result(GPU0)))
    first = await (await node.started()).prepare(reference())
    await _killed(await node.started(steps=DieAt(step)), preparing=False)
    service = await node.started()
    assert await service.prepare(reference()) == first
    _check_whole(node, service)


@pytest.mark.parametrize("step", [*PREPARING, *RELEASING])
def test_a_process_that_is_really_killed_leaves_what_the_next_one_understands(
    tmp_path: Path, dying: DyingProcesses, step: ClaimStep
) -> None:
    ended = dying.run(die, str(tmp_path / "node"), step.name)
    assert ended.code == EXIT, ended.written
    asyncio.run(_next(tmp_path / "node", step))


def die(root: str, step: str) -> None:
    """What the killed process does: prepare, and release where the step is one of releasing."""

    class Exit:
        def reached(self, reached: ClaimStep, uid: str) -> None:
            if reached.name == step:
                os._exit(EXIT)

    async def main() -> None:
        node = _node(Path(root))
        node.reader.put(claim(1, result(GPU0)))
        service = await node.started(steps=Exit())
        await service.prepare(reference())
        await service.unprepare(reference())

    asyncio.run(main())


async def _next(root: Path, step: ClaimStep) -> None:
    (root / "kubelet").rmdir()
    node = _node(root)
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started()
    if step in (*BEFORE_ANYTHING, ClaimStep.FORGOTTEN, ClaimStep.RELEASED):
        _check_empty(node, service)
    else:
        assert set(service.ledger.by_device()) == {GPU0}
        assert len(await service.prepare(reference())) == 1
        _check_whole(node, service)
    await service.unprepare(reference())
    assert len(await service.prepare(reference(2))) == 1
    _check_whole(node, service)


def _check_whole(node: ClaimNode, service: ClaimService) -> None:
    """Every claim that holds something is completed, on the disk too, and has its CDI files and its metadata file."""
    records = service.records()
    assert {record.state for record in records} == {RecordState.COMPLETED}
    assert _names(node.root / "state" / "claims") == [f"{record.claim.uid}.json" for record in records]
    uids = [record.claim.uid for record in records]
    specs = [
        *(f"ostler.dev-claim_{uid}.json" for uid in uids),
        *(f"ostler.dev_metadata_{uid}_gpu.json" for uid in uids),
    ]
    assert _names(node.root / "cdi") == specs
    assert _metadata_files(node) == [f"default_{record.claim.name}/gpu/metadata.json" for record in records]
    assert {hold.owner for hold in service.ledger.all} == {record.claim.uid for record in records}


def _check_empty(node: ClaimNode, service: ClaimService) -> None:
    assert service.records() == ()
    assert service.ledger.all == ()
    assert _names(node.root / "state" / "claims") == []
    assert _names(node.root / "cdi") == []
    assert _metadata_files(node) == []


def _metadata_files(node: ClaimNode) -> list[str]:
    root = node.data_dir / "dra-device-metadata"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []
