"""The whole way with an embedded kubelet: from Allocate to what the kubelet lists, in real time and on real sockets."""

from __future__ import annotations

import time
from pathlib import Path

from node.events import EventBus
from node.ledger.allocations import KubeletAllocations
from node.ledger.events import HoldsObserver, ReadingOutcome
from node.ledger.holds import HoldState
from node.ledger.loop import HoldsLoop
from node.ledger.pods import NoPodsKnown
from node.ledger.reader import LocalKubelet, Reading
from ostler.agent.edges import Edges
from sandbox.kubelet.pods import Container, Pod
from tests.making.events import RecordedEvents
from tests.making.grants import grant
from tests.making.offered_devices import gpu, snapshot
from tests.sandbox.kubelet.conftest import GPU, KubeletNode
from tests.sandbox.kubelet.scripted_plugin import device
from tests.waiting import background, eventually

CARDS = tuple(gpu(number) for number in range(8))
PODS = 100


class _Figures(HoldsObserver):
    """Counts the readings."""

    def __init__(self) -> None:
        self.outcomes: list[ReadingOutcome] = []

    def read(self, outcome: ReadingOutcome, seconds: float) -> None:
        self.outcomes.append(outcome)


async def test_a_burst_of_pods_is_followed_with_few_readings_and_ends_with_what_is_so(short_dir: Path) -> None:
    node, figures, holds = KubeletNode(short_dir), _Figures(), KubeletAllocations()
    kubelet = await node.kubelet()
    await node.plugin([device(card.uuid or "") for card in CARDS])
    await kubelet.wait_for(GPU, healthy=len(CARDS))
    holds.place(snapshot(*CARDS), (GPU,))
    holds.barrier(time.monotonic())
    bus = EventBus()
    bus.subscribe(Reading, lambda reading: holds.read(reading, NoPodsKnown(), 1000.0))
    loop = HoldsLoop(
        LocalKubelet(short_dir, short_dir / "device-plugins", Edges()),
        holds,
        bus,
        clocks=Edges(random=lambda: 0.0),
        events=RecordedEvents(),
        observer=figures,
    )
    by_id = {card.uuid: card for card in CARDS}
    last: list[str] = []
    try:
        async with background(loop.run()):
            for number in range(PODS):
                pod = Pod(f"u{number}", f"p{number}", "team", (Container("c", "app", {GPU: 1}),))
                assert (await kubelet.admit(pod)).admitted
                (id_,) = kubelet.allocated(pod.uid, "c")[GPU]
                holds.granted([grant(by_id[id_], GPU)], time.monotonic(), 1000.0)
                loop.soon()
                last.append(by_id[id_].name)
                if number >= 3:
                    kubelet.terminate(f"u{number - 3}")
                assert last[-1] in holds.wanted()
            listed = set(last[-3:])
            await eventually(lambda: {n for n, h in holds.wanted().items() if h.state is HoldState.LISTED} == listed)
            assert len(figures.outcomes) <= 6
            assert set(figures.outcomes) == {ReadingOutcome.WHOLE}
    finally:
        await node.close()
