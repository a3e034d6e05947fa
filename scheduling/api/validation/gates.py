"""Which optional features of the API server are on: they decide which fields it keeps and which rules count.

A field of a feature that is off is dropped before the rules are asked, unless the stored object uses the feature.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gates:
    """Feature gates by their upstream names; the defaults are those of Kubernetes 1.36."""

    device_taints: bool = True  # DRADeviceTaints, KEP-5055
    partitionable_devices: bool = True  # DRAPartitionableDevices, KEP-4815
    consumable_capacity: bool = True  # DRAConsumableCapacity, KEP-5075
    binding_conditions: bool = True  # DRADeviceBindingConditions, KEP-5007
    prioritized_list: bool = True  # DRAPrioritizedList, KEP-4816
    admin_access: bool = True  # DRAAdminAccess, KEP-5018
    extended_resource: bool = True  # DRAExtendedResource, KEP-5004
    device_status: bool = True  # DRAResourceClaimDeviceStatus, KEP-4817
    list_attributes: bool = False  # DRAListTypeAttributes, KEP-5491
    node_allocatable_resources: bool = False  # DRANodeAllocatableResources, KEP-5517


DEFAULT = Gates()
