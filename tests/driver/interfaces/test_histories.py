"""Whatever happens to pods, agents and the kernel: an interface is never lost, and no container starts without it."""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from driver.claims.model import ClaimError, ClaimReference
from driver.claims.service import ClaimService
from driver.interfaces.journal import ClaimMove, InterfaceMove
from driver.interfaces.moving import InterfaceStep
from driver.nri.sandboxes import Sandbox, SandboxRefused
from node.interfaces.model import (
    AttachedInterface,
    HostSetup,
    InterfaceError,
    InterfaceSettings,
    MovableInterface,
    Neighbor,
    Route,
    RoutingRule,
    VfSettings,
)
from node.value_data import from_data, to_data
from tests.making.claim_service import Killed, reference
from tests.making.moved_interfaces import NIC1, NIC2, DieAtInterface, InterfaceNode
from tests.waiting import background, eventually

SANDBOXES = (1, 2)
CALLS = ("look", "attach", "attached", "detach")
OPERATIONS = st.one_of(
    *(st.tuples(st.just(name), st.sampled_from(SANDBOXES)) for name in ("run", "stop", "vanish")),
    st.tuples(st.just("fault"), st.sampled_from(CALLS)),
    st.tuples(st.just("kill"), st.tuples(st.sampled_from(InterfaceStep), st.sampled_from((1, 2)))),
    *(
        st.tuples(st.just(name), st.none())
        for name in ("heal", "restart", "synchronize", "prepare", "unprepare", "retry", "hide", "show")
    ),
)


class _History:
    """A node on which one thing happens after the other."""

    def __init__(self, root: Path) -> None:
        self.place = InterfaceNode(root)
        self.place.put(1, NIC1, NIC2)
        self.sandboxes = {number: self.place.sandbox(number) for number in SANDBOXES}
        self.has_hidden = False
        self.service: ClaimService

    async def begin(self, dying: DieAtInterface | None = None) -> None:
        """A new agent; the old one did nothing since it was killed."""
        self.service = await self.place.agent(steps=dying)
        await self.place.interfaces.synchronize(self.alive)

    @property
    def alive(self) -> list[Sandbox]:
        return [each for each in self.sandboxes.values() if Path(each.netns).exists()]

    async def happens(self, name: str, about: Any) -> None:
        interfaces, mover = self.place.interfaces, self.place.mover
        match name:
            case "run":
                self.sandboxes[about] = self.place.sandbox(about)
                with suppress(SandboxRefused):
                    await interfaces.run(self.sandboxes[about])
            case "stop":
                with suppress(InterfaceError):
                    await interfaces.stop(self.sandboxes[about])
            case "vanish":
                Path(self.sandboxes[about].netns).unlink(missing_ok=True)
            case "fault":
                mover.faults[NIC2, about] = "interface eth2: busy"
            case "heal":
                mover.faults.clear()
            case "kill":
                await self.begin(DieAtInterface(*about))
            case "restart":
                await self.begin()
            case "synchronize":
                await interfaces.synchronize(self.alive)
            case "prepare":
                with suppress(ClaimError):
                    await self.service.prepare(reference())
            case "unprepare":
                with suppress(ClaimError):
                    await self.service.unprepare(reference())
            case "retry":
                await interfaces.retry()
            case "hide":
                # A process of the pod takes it into a namespace of its own.
                if mover.place(NIC2) not in ("host", ""):
                    mover.places[NIC2], mover.returns, self.has_hidden = "/hidden", False, True
            case "show":
                mover.returns = True

    def check(self) -> None:
        """What holds at any moment."""
        places = {self.place.mover.place(each) for each in (NIC1, NIC2)}
        if places != {"host"}:
            assert self.place.journal or self.place.lost, "what is out is on record"
        # A pod that hides its own interface goes on without it.
        if (
            not self.has_hidden
            and self.place.guard().exists()
            and all(Path(each.netns).exists() for each in self.sandboxes.values())
        ):
            assert len(places) == 1
            assert places != {"host"}, "no container starts without its interfaces"


async def scenario(root: Path, operations: list[tuple[str, Any]]) -> None:
    history = _History(root)
    await history.begin()
    for name, about in operations:
        try:
            await history.happens(name, about)
        except Killed:
            await history.begin()
        history.check()
    history.place.mover.faults.clear()
    history.place.mover.returns = True
    for sandbox in history.sandboxes.values():
        Path(sandbox.netns).unlink(missing_ok=True)
    await history.begin()
    await history.service.unprepare(reference())
    async with background(history.place.interfaces.keep()):
        history.place.interfaces.on_inventory_changed()
        await eventually(lambda: not history.place.lost)
    assert history.place.is_home()
    assert not history.place.guard().exists()
    assert history.service.ledger.all == ()


@settings(max_examples=30, deadline=None)
@given(st.lists(OPERATIONS, max_size=14))
def test_no_history_loses_an_interface(operations: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder), operations))


TEXTS = st.text(max_size=8)
ROUTES = st.builds(Route, TEXTS, TEXTS, TEXTS, TEXTS, st.integers(0, 9), onlink=st.booleans())
SETTINGS = st.builds(
    InterfaceSettings,
    name=TEXTS,
    addresses=st.none() | st.tuples() | st.tuples(TEXTS),
    routes=st.none() | st.tuples(ROUTES),
    rules=st.tuples(st.builds(RoutingRule, st.integers(0, 9), TEXTS)),
    neighbors=st.tuples(st.builds(Neighbor, TEXTS, TEXTS)) | st.tuples(),
    vf=st.none() | st.builds(VfSettings, TEXTS, st.none() | st.integers(0, 9), trust=st.none() | st.booleans()),
    features=st.tuples(st.tuples(TEXTS, st.booleans())),
    sysctls=st.tuples(st.tuples(TEXTS, TEXTS)),
    keep_ebpf=st.booleans(),
)
MOVES = st.builds(
    ClaimMove,
    st.builds(ClaimReference, TEXTS, TEXTS, TEXTS),
    TEXTS,
    st.builds(Sandbox, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, st.booleans()),
    st.tuples(
        st.builds(
            InterfaceMove,
            st.builds(MovableInterface, TEXTS, TEXTS, SETTINGS, vf_index=st.none() | st.integers(0, 9)),
            st.builds(HostSetup, TEXTS, st.integers(0, 9), TEXTS, st.integers(0, 9), st.booleans(), st.tuples(TEXTS)),
        )
    ),
    st.tuples() | st.tuples(st.builds(AttachedInterface, TEXTS, TEXTS, TEXTS, st.tuples(TEXTS), st.integers(0, 9))),
)


@settings(max_examples=20)
@given(MOVES)
def test_a_move_is_the_same_after_the_journal(move: ClaimMove) -> None:
    assert from_data(ClaimMove, json.loads(json.dumps(to_data(move)))) == move
