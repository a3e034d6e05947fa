"""What the status makes of the sources, and of the steps of a start."""

from __future__ import annotations

import pytest

from node.inventory.model import DeviceKind, SourceState, SourceStatus
from node.rules import NicSelector, Rule, Selector
from ostler.admin.status import in_view_of, readiness

SOURCES = (
    SourceStatus("network", SourceState.WAITING, "no network interface of the NIC is visible"),
    SourceStatus("nvml", SourceState.WAITING, "waiting for driver"),
)
GPUS = Rule("example.com/gpu", Selector((DeviceKind.GPU, DeviceKind.MIG)))


def test_interfaces_are_not_waited_for_where_no_rule_is_about_nics() -> None:
    network, nvml = in_view_of(SOURCES, [GPUS])
    assert (network.name, network.state) == ("network", SourceState.OK)
    assert "no rule is about NICs" in network.detail
    assert nvml == SOURCES[1]


def test_a_network_that_cannot_be_read_is_told_whatever_the_rules_are_about() -> None:
    failed = SourceStatus("network", SourceState.FAILED, "netlink: refused")
    assert in_view_of((failed,), [GPUS]) == (failed,)


def test_a_rule_by_kind_or_by_a_fact_of_nics_makes_interfaces_matter() -> None:
    for selector in (Selector((DeviceKind.RDMA,)), Selector(nic=NicSelector(rdma=True))):
        assert in_view_of(SOURCES, [GPUS, Rule("example.com/nic", selector)]) == SOURCES


@pytest.mark.parametrize(
    ("scanned", "offered", "waiting_for", "line"),
    [
        (False, False, (), "active; not ready; the first scan has not ended"),
        (True, False, (), "active; not ready; the devices of the first scan are not offered yet"),
        (
            True,
            True,
            ("resource example.com/gpu is waiting",),
            "active; not ready; resource example.com/gpu is waiting",
        ),
        (True, True, (), "active; ready"),
    ],
)
def test_each_step_of_a_start_has_its_own_reason(
    scanned: bool, offered: bool, waiting_for: tuple[str, ...], line: str
) -> None:
    assert readiness("active", 8, (), waiting_for, scanned=scanned, offered=offered).line == line


def test_a_standby_is_ready_though_it_offers_nothing() -> None:
    found = readiness("standby", 8, (), (), scanned=True, offered=False)
    assert found.line == "standby; ready; standby: another instance is active"
