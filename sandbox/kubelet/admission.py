"""A pod's admission: its containers are allocated one after the other, and the first error refuses the pod.

What was given before the error stays recorded until the pod is seen to be gone, as in kubelets.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.kubelet.allocation import DeviceAllocator
from sandbox.kubelet.devices import in_order
from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.pods import Affinity, Pod, PodAdmitResult
from sandbox.kubelet.records import PodDevices

REASON = "UnexpectedAdmissionError"


async def admit_pod(
    allocator: DeviceAllocator, records: PodDevices, pod: Pod, affinity: Mapping[str, Affinity]
) -> PodAdmitResult:
    """Allocate every container of ``pod``, which has to count as active already; ``affinity`` is per container."""
    for container in pod.in_start_order():
        try:
            await allocator.allocate(pod, container, affinity.get(container.name, Affinity()))
        except KubeletError as error:
            return PodAdmitResult(
                admitted=False,
                devices=held(records, pod),
                container=container.name,
                reason=REASON,
                message=f"Allocate failed due to {error}, which is unexpected",
                error=str(error),
            )
    return PodAdmitResult(admitted=True, devices=held(records, pod))


def held(records: PodDevices, pod: Pod) -> dict[str, dict[str, tuple[str, ...]]]:
    """Container -> resource -> ids, for containers that hold something."""
    devices: dict[str, dict[str, tuple[str, ...]]] = {}
    for container in pod.containers:
        for resource, record in records.of_container(pod.uid, container.name).items():
            devices.setdefault(container.name, {})[resource] = tuple(in_order(record.ids))
    return devices
