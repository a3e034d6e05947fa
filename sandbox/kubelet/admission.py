"""A pod's admission: its containers are allocated one after the other, and the first error refuses the pod.

What was given before the error stays recorded until the pod is seen to be gone, as in kubelets.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.kubelet.allocation import Allocator
from sandbox.kubelet.devices import in_order
from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.pods import Admission, Affinity, Pod
from sandbox.kubelet.records import Records

REASON = "UnexpectedAdmissionError"


async def admit_pod(allocator: Allocator, records: Records, pod: Pod, affinity: Mapping[str, Affinity]) -> Admission:
    """Allocate every container of ``pod``, which has to count as active already; ``affinity`` is per container."""
    for container in pod.in_start_order():
        try:
            await allocator.allocate(pod, container, affinity.get(container.name, Affinity()))
        except KubeletError as error:
            return Admission(
                admitted=False,
                devices=held(records, pod),
                container=container.name,
                reason=REASON,
                message=f"Allocate failed due to {error}, which is unexpected",
                error=str(error),
            )
    return Admission(admitted=True, devices=held(records, pod))


def held(records: Records, pod: Pod) -> dict[str, dict[str, tuple[str, ...]]]:
    """Container -> resource -> ids, for containers that hold something."""
    devices: dict[str, dict[str, tuple[str, ...]]] = {}
    for container in pod.containers:
        for resource, record in records.of_container(pod.uid, container.name).items():
            devices.setdefault(container.name, {})[resource] = tuple(in_order(record.ids))
    return devices
