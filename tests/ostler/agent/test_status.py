"""What the status makes of the sources."""

from __future__ import annotations

from node.inventory.model import DeviceKind, SourceState, SourceStatus
from node.rules import NicSelector, Rule, Selector
from ostler.admin.status import in_view_of

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
