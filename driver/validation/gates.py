"""Which optional features of the API server are on: they decide which fields it keeps and which rules count.

A field of a feature that is off is dropped before the rules are asked, unless the stored object uses the feature.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gates:
    """Feature gates by their upstream names; the defaults are those of Kubernetes 1.36."""

    device_taints: bool = True  # DRADeviceTaints
    partitionable_devices: bool = True  # DRAPartitionableDevices
    consumable_capacity: bool = True  # DRAConsumableCapacity
    binding_conditions: bool = True  # DRADeviceBindingConditions
    prioritized_list: bool = True  # DRAPrioritizedList
    admin_access: bool = True  # DRAAdminAccess
    extended_resource: bool = True  # DRAExtendedResource
    device_status: bool = True  # DRAResourceClaimDeviceStatus
    list_attributes: bool = False  # DRAListTypeAttributes
    node_allocatable_resources: bool = False  # DRANodeAllocatableResources


DEFAULT = Gates()
