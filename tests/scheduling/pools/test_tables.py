"""The tables that the design's own tests had: its node shapes, its constraints, and the needs of its examples."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.constraints import DeviceFacts, outcome_of
from scheduling.pools.documents import DevicePool, PoolDeviceClass
from scheduling.pools.matching import devices_of
from scheduling.pools.reading import read, read_text
from scheduling.pools.search import PoolSolution, node_names, pools_at, search
from tests.making.pool_documents import attributes, claim, class_, document

FOOZER, BARZER = "example.com-foozer", "example.com-barzer"
CLASSES = [class_(FOOZER, FOOZER, deviceType="foozer"), class_(BARZER, BARZER, deviceType="barzer")]
VERSIONS = [
    {"name": "firmwareVersion", "semVerValue": "1.8.2"},
    {"name": "driverVersion", "semVerValue": "4.2.1-gen3"},
]


def generated(node: str, model: str, driver: str, count: int, numa: int | None) -> DevicePool:
    """One pool of the generator: what its devices share, and their NUMA node."""
    shared = [*attributes({"vendor": "example.com", "model": model}), *VERSIONS]
    facts = [] if numa is None else attributes({"numa": str(numa)})
    devices = [{"name": f"dev-{number:02}", "attributes": facts} for number in range(count)]
    name = f"{node}-{model}-{'all' if numa is None else numa}"
    spec = {"nodeName": node, "driver": driver, "attributes": shared, "devices": devices}
    found = read(document("DevicePool", name, spec))
    assert isinstance(found, DevicePool)
    return found


def shape(node: str, model: str, numas: int, count: int, driver: str = FOOZER) -> list[DevicePool]:
    return [generated(node, model, driver, count, each) for each in range(numas)]


ZERO = [generated(f"zero-{n}", "foozer-1000", FOOZER, 2, None) for n in range(2)]
ONE = shape("one-0", "foozer-1000", 2, 2)
TWO = shape("two-0", "foozer-4000", 4, 4)
THREE = [each for n in range(2) for each in shape(f"three-{n}", "barzer-1000", 4, 4, BARZER)]
BOTH = shape("both-0", "foozer-1000", 4, 2) + shape("both-0", "barzer-1000", 4, 2, BARZER)


def need(name: str, count: int = 1, **more: Any) -> dict[str, Any]:
    return {"deviceClass": name, "requests": {"count": count}, **more}


SELECT_NODE = {
    "single by driver": (ZERO, [need(FOOZER)], ["zero-0", "zero-1"]),
    "constraint met": (ZERO, [need(FOOZER, constraints="device.model == 'foozer-1000'")], ["zero-0", "zero-1"]),
    "constraint not met": (ZERO, [need(FOOZER, constraints="device.model == 'foozer-8000'")], []),
    "several of one pool": (ZERO, [need(FOOZER, 2)], ["zero-0", "zero-1"]),
    "split across pools": (ONE, [need(FOOZER, 4)], ["one-0"]),
    "two claims, no single node": ([*ZERO, *THREE], [need(FOOZER), need(BARZER)], []),
    "two claims, one node": ([*ZERO, *BOTH], [need(FOOZER), need(BARZER)], ["both-0"]),
    "split across NUMA nodes that must match": (ONE, [need(FOOZER, 4, matchAttributes=["numa"])], []),
    "as many as one NUMA node has": (TWO, [need(FOOZER, 4, matchAttributes=["numa"])], ["two-0"]),
}


@pytest.mark.parametrize("case", SELECT_NODE)
def test_nodes_that_can_meet_the_claims(case: str) -> None:
    pools, needs, nodes = SELECT_NODE[case]
    claims = [claim(each, name=f"claim-{number}") for number, each in enumerate(needs)]
    assert [each for each in node_names(pools) if search(claims, CLASSES, pools_at(pools, each))] == nodes


@pytest.mark.parametrize(("numas", "count"), [(1, 2), (1, 4), (2, 4), (4, 4)])
def test_generated_nodes_have_their_devices_and_no_more(numas: int, count: int) -> None:
    pools = shape("n", "foozer-1000", numas, count)
    assert search([claim(need(FOOZER, numas * count))], CLASSES, pools) is not None
    assert search([claim(need(FOOZER, numas * count + 1))], CLASSES, pools) is None


MEETS: dict[str | None, bool | str] = {
    None: True,
    "": True,
    "device.vendor == 'example.com'": True,
    "device.vendor == 'example.org'": False,
    "device.vendor == 'example.com' && device.model == 'foozer-1000'": True,
    "device.vendor == 'example.com' && device.model == 'foozer-4000'": False,
    "device.memory > '1Gi'": "quantity",
}


@pytest.mark.parametrize("constraint", MEETS)
def test_constraint_is_met(constraint: str | None) -> None:
    (first, _) = devices_of(ZERO[0])
    memory = devices_of(quantity_pool())[0].facts.values.values()
    outcome = outcome_of(constraint, DeviceFacts((*first.facts.values.values(), *memory)))
    assert (outcome.error.fault.value if outcome.error else outcome.result) == MEETS[constraint]


def quantity_pool() -> DevicePool:
    spec = {"driver": "d", "devices": [{"name": "a", "attributes": [{"name": "memory", "quantityValue": "8Gi"}]}]}
    found = read(document("DevicePool", "p", spec))
    assert isinstance(found, DevicePool)
    return found


NICS = """
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: card-1}
spec:
  driver: sriov.example.com
  attributes: [{name: vendor, stringValue: example.com}]
  sharedResources: {units-0: 2, units-1: 2}
  devices:
  - {name: pf-0, attributes: [{name: kind, stringValue: pf}], sharedResourcesConsumed: {units-0: 2}}
  - {name: pf-1, attributes: [{name: kind, stringValue: pf}], sharedResourcesConsumed: {units-1: 2}}
  - {name: vf-00, attributes: [{name: kind, stringValue: vf}, {name: pf, intValue: 0}],
     sharedResourcesConsumed: {units-0: 1}}
  - {name: vf-01, attributes: [{name: kind, stringValue: vf}, {name: pf, intValue: 0}],
     sharedResourcesConsumed: {units-0: 1}}
  - {name: vf-10, attributes: [{name: kind, stringValue: vf}, {name: pf, intValue: 1}],
     sharedResourcesConsumed: {units-1: 1}}
  - {name: vf-11, attributes: [{name: kind, stringValue: vf}, {name: pf, intValue: 1}],
     sharedResourcesConsumed: {units-1: 1}}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: vf, labels: {type: nic}}
spec: {driver: sriov.example.com, constraints: device.kind == 'vf'}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: pf, labels: {type: nic}}
spec: {driver: sriov.example.com, constraints: device.kind == 'pf'}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: nic}
spec: {selector: {matchLabels: {type: nic}}}
"""
NEEDS = {
    "two VFs of one PF": ("{class: vf, requests: {devices: 2}, matchAttributes: [pf]}", ["vf-00", "vf-01"]),
    "a PF excludes its VFs": ("{class: pf}, {class: vf, requests: {devices: 2}}", ["pf-0", "vf-10", "vf-11"]),
    "a PF and three VFs": ("{class: pf}, {class: vf, requests: {devices: 3}}", None),
    "any NIC": ("{class: nic}", ["pf-0"]),
    "two to four": ("{class: vf, maxDevices: 4, requests: {devices: 2}}", ["vf-00", "vf-01"]),
    "four of one vendor": (
        "{class: vf, requests: {devices: 4}, matchAttributes: [vendor]}",
        ["vf-00", "vf-01", "vf-10", "vf-11"],
    ),
    "five": ("{class: vf, requests: {devices: 5}}", None),
}


@pytest.mark.parametrize("case", NEEDS)
def test_needs_of_the_later_spelling(case: str) -> None:
    details, names = NEEDS[case]
    head = "apiVersion: devmgmtproto.k8s.io/v1alpha1\nkind: DeviceClaim\nmetadata: {name: k}\n"
    (asked,) = read_text(f"{head}spec: {{devices: [{{name: net, allOf: [{details}]}}]}}")
    documents = read_text(NICS)
    assert isinstance(asked, DeviceClaim)
    classes = [each for each in documents if isinstance(each, PoolDeviceClass)]
    found = search([asked], classes, [each for each in documents if isinstance(each, DevicePool)])
    assert devices_in(found) == names


def devices_in(found: PoolSolution | None) -> list[str] | None:
    return None if found is None else [one.device.device.name for each in found.needs for one in each.devices]
