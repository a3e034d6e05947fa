"""Any history of questions, kills, restarts, reboots and looks leaves no device with two claims."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from driver.claims.contracts import ClaimStep
from driver.claims.model import ClaimError
from driver.claims.service import ClaimService
from node.ledger.holds import excludes
from tests.making.claim_service import GPU0, GPU1, ClaimNode, DieAt, Killed, claim, reference, result

_CLAIMS = {1: (GPU0,), 2: (GPU1,), 3: (GPU0, GPU1)}

_events = st.one_of(
    st.tuples(st.just("prepare"), st.sampled_from(sorted(_CLAIMS))),
    st.tuples(st.just("release"), st.sampled_from(sorted(_CLAIMS))),
    st.tuples(st.just("kill at"), st.sampled_from(list(ClaimStep))),
    st.tuples(st.sampled_from(["restart", "reboot", "look", "lose files"]), st.none()),
)


class _History:
    """A node with one kubelet: what it was answered, it holds until it has released it."""

    def __init__(self, root: Path) -> None:
        self.node = ClaimNode(root)
        self.node.with_options(device_wait=0.0)
        for number, devices in _CLAIMS.items():
            self.node.reader.put(claim(number, *(result(device) for device in devices)))
        self.known: dict[int, tuple[str, ...]] = {}
        self.steps: DieAt | None = None

    async def start(self) -> ClaimService:
        self._write()
        steps, self.steps = self.steps, None
        return await (self.node.started(steps=steps) if steps is not None else self.node.started())

    async def prepare(self, service: ClaimService, number: int) -> None:
        self.known.setdefault(number, ())
        self._write()
        try:
            answer = await service.prepare(reference(number))
        except ClaimError:
            return
        for other, devices in self.known.items():
            assert other == number or not set(devices) & {device.device for device in answer}
        self.known[number] = tuple(device.device for device in answer)
        assert self.known[number] == _CLAIMS[number]
        assert self.node.spec(number) is not None

    async def release(self, service: ClaimService, number: int) -> None:
        await service.unprepare(reference(number))
        self.known.pop(number, None)
        self._write()

    def check(self, service: ClaimService) -> None:
        held = service.ledger.all
        assert not any(excludes(one, other) for one in held for other in held)
        for number, devices in self.known.items():
            mine = {hold.device for hold in held if hold.owner == reference(number).uid}
            assert set(devices) <= mine, "what the kubelet was answered is held for it"

    def _write(self) -> None:
        self.node.kubelet_knows(*self.known, devices=self.known)


@settings(max_examples=30)
@given(st.lists(_events, max_size=14))
def test_no_history_gives_a_device_to_two_claims(history: list[tuple[str, object]]) -> None:
    asyncio.run(_lived(history))


async def _lived(history: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        node = _History(Path(root) / "node")
        service = await node.start()
        for what, which in history:
            try:
                await _happens(node, service, what, which)
                restart = what in ("restart", "reboot", "kill at", "lose files")
            except Killed:
                restart = True
            if restart:
                await service.close()
                service = await node.start()
            node.check(service)
        await service.close()
        node.steps = None
        service = await node.start()
        for number in _CLAIMS:
            await node.release(service, number)
        await service.collect()
        assert service.ledger.all == ()
        assert not list((Path(root) / "node" / "cdi").glob("*"))
        await service.close()


async def _happens(node: _History, service: ClaimService, what: str, which: object) -> None:
    if what == "prepare" and isinstance(which, int):
        await node.prepare(service, which)
    elif what == "release" and isinstance(which, int):
        await node.release(service, which)
    elif what == "kill at" and isinstance(which, ClaimStep):
        node.steps = DieAt(which)
    elif what == "reboot":
        node.node.boot += "+"
        for path in (node.node.root / "cdi").glob("*"):
            path.unlink()
    elif what == "lose files":
        for path in (node.node.root / "state" / "claims").glob("*"):
            path.unlink()
    elif what == "look":
        await service.collect()
