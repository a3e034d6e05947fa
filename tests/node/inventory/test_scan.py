"""One scan after the other: what is concluded again, and what stands because nothing has changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.clocks import SystemClocks
from node.inventory.facts import NodeFacts
from node.inventory.identity import IdentityStore
from node.inventory.model import Device, Snapshot, is_gone
from node.inventory.net_facts import HostLink, HostRoute, NetworkFacts
from node.inventory.places import places_of
from node.inventory.scan import Scanner
from node.topology.model import Place, PlaceOverride
from tests.making.nic_facts import interface, nic, nics
from tests.making.nvidia_facts import a100, gpu, mig, node, sysfs

FREE = NetworkFacts((HostLink("eth0"),))
ROUTED = NetworkFacts((HostLink("eth0"),), default_routes=(HostRoute("eth0", 4),))


def with_nic(network: NetworkFacts) -> NodeFacts:
    return nics(nic(), network=network, interfaces=(interface(nic(), "eth0"),))


class _Node:
    """A scanner with one source, whose facts and time are set, and what would be published."""

    def __init__(self, store: IdentityStore | None = None) -> None:
        self.facts = NodeFacts()
        self.now = 1000.0
        self.snapshot = Snapshot()
        self.scanner = Scanner((self,), store or IdentityStore(None), SystemClocks(clock=lambda: self.now))

    name = "facts"

    def read(self) -> NodeFacts:
        return self.facts

    def close(self) -> None:
        pass

    def scan(self, facts: NodeFacts, now: float, gpus: frozenset[str] = frozenset()) -> Snapshot:
        self.facts, self.now = facts, now
        found = self.scanner.scan(self.snapshot, gpus)
        self.snapshot = replace(found, generation=self.snapshot.generation + 1)
        return found


def test_the_same_facts_give_the_very_devices_that_were_there() -> None:
    each = _Node()
    readings = [each.scan(node(gpu(0), gpu(1)), 1000.0 + 60 * number) for number in range(4)]
    assert readings[1:] == readings[:1] * 3
    assert all(now is before for now, before in zip(readings[3].devices, readings[0].devices, strict=True))
    assert readings[3].devices is readings[2].devices, "nothing was concluded anew"
    assert each.scan(node(gpu(0), gpu(1, memory_bytes=1)), 2000.0) != readings[0]
    assert each.scan(node(gpu(0), gpu(1)), 2060.0) == readings[0]


def test_a_scan_of_gpus_leaves_nics_as_they_were_until_the_next_scan_of_everything() -> None:
    each = _Node()
    before, after = (
        replace(nics(nic(), network=network, interfaces=(interface(nic(), "eth0"),)), nvml=node(gpu).nvml)
        for network, gpu in ((FREE, a100(0)), (ROUTED, a100(0, mig(0, 0))))
    )
    each.scan(before, 1000.0)
    parted = each.scan(after, 1010.0, frozenset({a100(0).uuid or ""}))
    assert [(device.kind.value, device.host_use) for device in parted.devices] == [
        ("gpu", ""),
        ("mig", ""),
        ("nic", ""),
    ]
    assert each.scanner._identities.load().nics, "what is known of NICs stays"
    (use,) = [device.host_use for device in each.scan(after, 1020.0).devices if device.host_use]
    assert use == "carries the node's default route (IPv4, by eth0)"


def test_overrides_count_from_the_next_scan_on_although_nothing_else_changed() -> None:
    each = _Node()
    for now in (1000.0, 1060.0, 1120.0):
        each.scan(node(gpu(0)), now)
    each.scanner.override((PlaceOverride("0000:1b:00.0", ("switch-7",)),))
    assert each.scan(node(gpu(0)), 1180.0).topology.overridden == ("0000:1b:00.0",)


def test_the_topology_is_made_again_when_what_it_knows_changes_and_not_for_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    def counted(devices: Iterable[Device]) -> tuple[Place, ...]:
        places = places_of(devices)
        made.append(len(places))
        return places

    monkeypatch.setattr("node.inventory.scan.places_of", counted)
    each = _Node()
    undivided = each.scan(node(a100(0), a100(1)), 1000.0).topology
    assert each.scan(node(a100(0), a100(1, mig(0, 0))), 1010.0).topology is undivided
    assert made == [2]
    alone = each.scan(node(a100(0), on_bus=1), 1020.0).topology
    assert [place.label for place in alone.places] == ["GPU0"]
    assert each.scan(node(a100(0), a100(1)), 1030.0).topology == undivided
    assert made == [2, 1, 2]


def test_a_device_that_is_gone_ends_after_its_hour_although_nothing_else_changes() -> None:
    each = _Node()
    each.scan(node(gpu(0), gpu(1)), 1000.0)
    names = [len(each.scan(node(gpu(0), on_bus=1), now).devices) for now in (1060.0, 1120.0, 1180.0, 4650.0, 4661.0)]
    assert names == [2, 2, 2, 2, 1]


def test_a_partition_removed_on_purpose_is_not_shown_as_gone_until_it_is_made_again() -> None:
    each = _Node()
    divided, empty = node(a100(0, mig(0, 0))), node(a100(0))
    (part,) = (device for device in each.scan(divided, 1000.0).devices if device.uuid == mig(0, 0).uuid)
    each.scanner.forget([mig(0, 0).uuid or ""])
    assert part in each.scan(divided, 1010.0).devices, "it is still there"
    assert part.name not in {device.name for device in each.scan(empty, 1020.0).devices}
    each.scan(divided, 1030.0)
    (gone,) = (device for device in each.scan(empty, 1040.0).devices if device.name == part.name)
    assert is_gone(gone)


def test_a_use_that_ends_counts_for_a_minute_from_the_last_scan_and_not_from_the_last_change() -> None:
    each = _Node()
    for now in (1000.0, 1060.0, 1120.0, 1180.0, 1240.0):
        each.scan(with_nic(ROUTED), now)
    uses = [each.scan(with_nic(FREE), now).devices[0].host_use for now in (1250.0, 1290.0, 1301.0)]
    assert uses == ["carries the node's default route (IPv4, by eth0)"] * 2 + [""]


def test_identities_that_could_not_be_written_are_tried_again_although_nothing_changes(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.write_text("a file where the folder should be")
    each = _Node(IdentityStore(folder / "identities.json"))
    for now in (1000.0, 1060.0, 1120.0):
        each.scan(node(gpu(0)), now)
    folder.unlink()
    each.scan(node(gpu(0)), 1180.0)
    assert (folder / "identities.json").is_file()


FACTS = (
    node(gpu(0), gpu(1)),
    node(gpu(0), on_bus=1),
    node(a100(0, mig(0, 0), mig(1, 1)), gpu(1)),
    node(a100(0, mig(0, 0)), gpu(1)),
    node(gpu(0), replace(gpu(1), error="GPU_IS_LOST")),
    NodeFacts(sysfs=sysfs(0)),
    with_nic(ROUTED),
    with_nic(FREE),
)


@given(st.lists(st.tuples(st.sampled_from(FACTS), st.integers(1, 4), st.sampled_from([1, 30, 61, 1900]))))
def test_what_stands_is_what_would_be_concluded_again(steps: list[tuple[NodeFacts, int, int]]) -> None:
    lazy, thorough = _Node(), _Node()
    now = 1000.0
    for facts, times, seconds in steps:
        for time in range(times):
            now += seconds
            # Of a device that is not there, so it only makes this scanner conclude anew each time.
            thorough.scanner.override((PlaceOverride(f"ffff:0{time % 2}:00.0", ("nowhere",)),))
            assert lazy.scan(facts, now) == thorough.scan(facts, now)
