"""How many series there are: as many as resources and faults make, and not as devices or as those that once were."""

from __future__ import annotations

from node.clocks import SystemClocks
from node.health.state import Health, HealthState
from node.inventory.loop import ScanDone
from node.inventory.model import Device, DeviceKind, Snapshot
from node.offer import Cause, Offer, OfferedDevice, ResourceOffer
from node.rules import Rule, Selector
from ostler.agent.event_log import EventLog
from ostler.metrics.counters import AgentMetrics
from ostler.metrics.exposition import Exposition
from ostler.metrics.gauges import Figures
from plugin.door import ResourceStatus
from plugin.kubelet import RegistrationPath
from plugin.registration import PluginRegistrationState, PluginRegistrationStatus
from tests.ostler.metrics.scraping import Scrape

LOST = Health(HealthState.UNHEALTHY, "it is lost", 1700000000.0)
REGISTERED = PluginRegistrationStatus(PluginRegistrationState.REGISTERED, RegistrationPath.REGISTRY)


def scrape(metrics: AgentMetrics, *, devices: int, lost: int = 0, resources: int = 1) -> Scrape:
    """What an agent with this many devices shows, dealt out among the resources."""
    found = [
        Device(f"nic-0000-{index:04x}-00-0", DeviceKind.NIC, "mellanox", health=LOST if index < lost else Health())
        for index in range(devices)
    ]
    names = [f"example.com/r{index}" for index in range(resources)]
    offers, statuses = [], []
    for index, name in enumerate(names):
        shown = [
            OfferedDevice(each.name, each, each.health.usable, cause=None if each.health.usable else Cause.HEALTH)
            for each in found[index::resources]
        ]
        offers.append(ResourceOffer(name, Rule(name, Selector()), tuple(shown)))
        statuses.append(ResourceStatus(name, len(shown), sum(each.healthy for each in shown), 1, REGISTERED))
        metrics.plugin.listed(name, len(shown), len(shown))
        metrics.plugin.registered(name, "registry")
        metrics.plugin.called(name, "Allocate", "OK", 0.0005)
    figures = Figures(
        role="active",
        ready=True,
        quiesced=False,
        snapshot=Snapshot(1, tuple(found)),
        offer=Offer(tuple(offers)),
        cdi_fault="",
        scan_interval=60.0,
        resources=tuple(statuses),
        events=EventLog(SystemClocks(clock=lambda: 0.0)).counts,
        live=None,
        node_events=None,
    )
    return Scrape(Exposition(metrics, lambda: figures).text().decode())


def test_devices_that_are_well_make_no_series() -> None:
    few, many = scrape(AgentMetrics(), devices=8), scrape(AgentMetrics(), devices=1000)
    assert len(many.series) == len(few.series) < 200


def test_each_device_that_is_not_well_makes_one() -> None:
    well, ill = scrape(AgentMetrics(), devices=1000), scrape(AgentMetrics(), devices=1000, lost=1000)
    # One more says how many; those of the state healthy are now of the state unhealthy.
    assert len(ill.series) == len(well.series) + 1000 + 1


def test_each_resource_makes_a_bounded_number() -> None:
    one, eleven = (scrape(AgentMetrics(), devices=1000, resources=number) for number in (1, 11))
    assert (len(eleven.series) - len(one.series)) / 10 < 80
    assert len(eleven.text) < 100_000


def test_a_resource_that_is_not_there_any_more_has_no_time_of_its_registration() -> None:
    metrics = AgentMetrics()
    metrics.plugin.registered("example.com/former", "registry")
    found = scrape(metrics, devices=1)
    assert found.labels_of("ostler_registration_timestamp_seconds") == [{"resource": "example.com/r0"}]


def test_there_is_no_time_of_a_scan_before_the_first_has_ended() -> None:
    metrics = AgentMetrics()
    assert "ostler_last_scan_timestamp_seconds" not in scrape(metrics, devices=1).names()
    metrics.scans.scanned(ScanDone(0.02, ()))
    assert scrape(metrics, devices=1)("ostler_last_scan_timestamp_seconds") == metrics.scans.last.values[()]
