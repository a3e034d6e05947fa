"""Which of Kubernetes' features the allocator assumes.

Every switch stands for a feature gate of the scheduler. A cluster that is older than a feature, or has it switched off,
allocates differently: a request that needs it is refused, a device that needs it is left out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Features:
    """Feature gates; the defaults are those of Kubernetes 1.37."""

    admin_access: bool = True  # DRAAdminAccess
    prioritized_list: bool = True  # DRAPrioritizedList: firstAvailable
    partitionable_devices: bool = True  # DRAPartitionableDevices: shared counters, perDeviceNodeSelection
    device_taints: bool = True  # DRADeviceTaints
    binding_conditions: bool = True  # DRADeviceBindingConditions and DRAResourceClaimDeviceStatus
    consumable_capacity: bool = True  # DRAConsumableCapacity: allowMultipleAllocations, capacity requests
    fractional_capacity_range: bool = True  # DRAFractionalCapacityRange: steps below one unit
    list_attributes: bool = False  # DRAListTypeAttributes
