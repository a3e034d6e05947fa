"""From raw facts to devices, host and source states: the one place where all vendors come together.

Pure and total: the same facts and identities give the same value, live or recorded, and no facts make it raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from node.inventory.facts import NodeFacts
from node.inventory.identity import Identities
from node.inventory.model import Device, Host, SourceState, SourceStatus
from node.inventory.nics.devices import network_status, nic_devices
from node.inventory.nvidia.devices import nvidia_status
from node.inventory.vendor import Vendor
from node.inventory.vendors import VENDORS


def devices_of(
    facts: NodeFacts,
    identities: Identities,
    vendors: Sequence[Vendor] = VENDORS,
    nics: Sequence[Device] | None = None,
) -> tuple[Device, ...]:
    """All devices, sorted by name; names are unique, because they hold kind and PCI address.

    ``nics``: the NICs, if they are known already.
    """
    found = [device for vendor in vendors for device in vendor.devices(facts, identities)]
    found += nic_devices(facts, identities) if nics is None else nics
    return tuple(sorted(found, key=attrgetter("name")))


def host_of(facts: NodeFacts) -> Host:
    """What responses to the kubelet need to know of the node besides its devices."""
    cdi = frozenset(facts.cdi.devices) if facts.cdi is not None else frozenset[str]()
    exclusive = facts.sysfs is not None and bool(facts.sysfs.rdma_exclusive)
    return Host(cdi_devices=cdi, driver_files=facts.driver_files, rdma_exclusive=exclusive)


def statuses_of(facts: NodeFacts, identities: Identities | None = None) -> tuple[SourceStatus, ...]:
    """The status of each section's source, sorted by name; a section that no source reads has none.

    ``identities``: remembered NICs, so that interfaces in pods do not count as hidden.
    """
    found = [
        _errors("cdi", facts.cdi.errors) if facts.cdi is not None else None,
        network_status(facts, identities or Identities()),
        nvidia_status(facts),
        _errors("sysfs", facts.sysfs.errors) if facts.sysfs is not None else None,
    ]
    return tuple(sorted((status for status in found if status is not None), key=attrgetter("name")))


def _errors(name: str, errors: tuple[str, ...]) -> SourceStatus:
    if not errors:
        return SourceStatus(name, SourceState.OK)
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return SourceStatus(name, SourceState.FAILED, f"{errors[0]}{more}")
