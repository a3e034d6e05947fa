"""A pod's admission and the start of its containers: allocation, PreStartContainer, and the options to run with.

Containers are allocated one after the other, and the first error refuses the pod. What was given before the error
stays recorded until the pod is seen to be gone, as in kubelets.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.kubelet.allocation import DeviceAllocator
from sandbox.kubelet.devicemanager import DeviceManager
from sandbox.kubelet.devices import in_order
from sandbox.kubelet.errors import ContainerStartError, KubeletError
from sandbox.kubelet.pod_devices import ContainerResource, PodDevices, RunOptions, merge
from sandbox.kubelet.pods import Affinity, Container, Pod, PodAdmitResult

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


async def start_container(
    manager: DeviceManager, allocator: DeviceAllocator, pod: Pod, container: Container, *, active: bool
) -> RunOptions | None:
    """The options of one start of a container, None if it holds nothing.

    As in kubelets, an active pod without a record is allocated now, unless its plugin wants PreStartContainer, which
    fails without a record; and PreStartContainer is called at every start, even for a pod that is no longer active.
    Raises ``ContainerStartError`` (the container stays waiting) or ``AllocationError``.
    """
    late = False
    for resource, quantity in sorted(container.limits.items()):
        if not quantity or not allocator.is_device_resource(resource):
            continue
        holder = ContainerResource(pod.uid, container.name, resource)
        await _pre_start(manager, holder)
        late = late or (active and manager.records.get(holder) is None)
    if late:
        await allocator.allocate(pod, container, Affinity())
    records = manager.records.of_container(pod.uid, container.name)
    return merge({resource: record.answer for resource, record in records.items()}) if records else None


async def _pre_start(manager: DeviceManager, holder: ContainerResource) -> None:
    endpoint = manager.endpoint(holder.resource)
    if endpoint is None:
        raise ContainerStartError(f"endpoint not found in cache for a registered resource: {holder.resource}")
    if endpoint.options is None or not endpoint.options.pre_start_required:
        return
    record = manager.records.get(holder)
    if record is None:
        raise ContainerStartError(
            f"no devices found allocated in local cache for pod {holder.pod_uid}, container {holder.container}, "
            f"resource {holder.resource}"
        )
    try:
        await endpoint.pre_start(in_order(record.ids))
    except KubeletError as error:
        raise ContainerStartError(f"device plugin PreStartContainer rpc failed with err: {error}") from error
