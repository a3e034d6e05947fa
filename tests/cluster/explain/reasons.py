"""The commonest reasons for which a pod with claims waits, as objects that make them.

Everything happens on one node, to the pod ``train`` of namespace ``team`` and its claim ``train``; ``infer`` was there
before and has its devices. The titles are headings of docs/explain.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.cluster.components.versions import DRA_GATES_ON
from tests.cluster.rig.api import Object
from tests.judge.chance import Json

NODE = "gpu-1"
GPU, NIC = "gpu.example.com", "nic.example.com"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"


@dataclass(frozen=True, slots=True)
class ClusterReason:
    """Objects that make a pod wait. ``train`` and ``infer`` are the requests of these pods' claims.

    ``since``: the first minor release whose scheduler refuses the pod for them; older API servers drop the fields that
    ``DRA_GATES_ON`` is about, and the scheduler of 1.34 takes devices of an incomplete pool.
    """

    title: str
    slices: tuple[Object, ...]
    train: tuple[Json, ...]
    infer: tuple[Json, ...] = ()
    constraints: tuple[Json, ...] = ()
    since: str = ""
    classes: tuple[Object, ...] = field(default_factory=lambda: (device_class(GPU), device_class(NIC)))


def device_class(driver: str, name: str = "") -> Object:
    """The class of a driver's devices."""
    return {"metadata": {"name": name or driver}, "spec": {"selectors": [selector(f'device.driver == "{driver}"')]}}


def selector(expression: str) -> Json:
    """A selector of a class or request."""
    return {"cel": {"expression": expression}}


def request(name: str = "gpu", device_class: str = GPU, count: int = 1, *selectors: str, **more: object) -> Json:
    """A request for a number of devices."""
    exactly: Json = {"deviceClassName": device_class, "count": count, **more}
    if selectors:
        exactly["selectors"] = [selector(each) for each in selectors]
    return {"name": name, "exactly": exactly}


def gpu(name: str, model: str = "H100", memory: str = "80Gi", **more: object) -> Json:
    """A device of the driver ``gpu.example.com``."""
    attributes = {"model": {"string": model}}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}, **more}


def at_root(device: Json, root: str) -> Json:
    """The device below a root port of PCIe."""
    return {**device, "attributes": {**device.get("attributes", {}), PCIE_ROOT: {"string": root}}}


def slice_of(*devices: Json, driver: str = GPU, part: str = "0", slices: int = 1, **more: object) -> Object:
    """A slice of the node's pool."""
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": slices}
    spec: Json = {"driver": driver, "nodeName": NODE, "pool": pool, **more}
    if devices:
        spec["devices"] = list(devices)
    return {"metadata": {"name": f"{NODE}-{driver}-{part}"}, "spec": spec}


def _partition(name: str, memory: str) -> Json:
    counters = {"memory": {"value": memory}}
    return gpu(name, memory=memory, consumesCounters=[{"counterSet": "gpu-0", "counters": counters}])


def _bandwidth(amount: str) -> Json:
    return {"requests": {"bandwidth": amount}}


REASONS = (
    ClusterReason(
        "No device is of the class",
        slices=(slice_of(gpu("gpu-0"), gpu("gpu-1")),),
        classes=(device_class("gpu.exmaple.com", name=GPU),),
        train=(request(),),
    ),
    ClusterReason(
        "The request's selector is false",
        slices=(slice_of(gpu("gpu-0", memory="40Gi"), gpu("gpu-1", "A100"), gpu("gpu-2", "A100")),),
        train=(
            request(
                "gpu",
                GPU,
                1,
                f'device.attributes["{GPU}"].model == "H100" &&'
                f' device.capacity["{GPU}"].memory.compareTo(quantity("80Gi")) >= 0',
            ),
        ),
    ),
    ClusterReason(
        "All devices are held",
        slices=(slice_of(gpu("gpu-0"), gpu("gpu-1")),),
        infer=(request(count=2),),
        train=(request(),),
    ),
    ClusterReason(
        "The count is too large",
        slices=(slice_of(gpu("gpu-0"), gpu("gpu-1")),),
        train=(request(count=4),),
    ),
    ClusterReason(
        "The device is tainted",
        since=DRA_GATES_ON,
        slices=(slice_of(gpu("gpu-0", taints=[{"key": f"{GPU}/xid", "value": "79", "effect": "NoSchedule"}])),),
        train=(request(),),
    ),
    ClusterReason(
        "The device class is missing",
        slices=(slice_of(gpu("gpu-0")),),
        train=(request(device_class="gpu.example.con"),),
    ),
    ClusterReason(
        "The pool is incomplete",
        since="1.35",
        slices=(slice_of(gpu("gpu-0"), slices=2),),
        train=(request(),),
    ),
    ClusterReason(
        "GPU and NIC share no PCIe root",
        slices=(
            slice_of(at_root(gpu("gpu-0"), "pci0000:17"), at_root(gpu("gpu-1"), "pci0000:5d")),
            slice_of(at_root({"name": "nic-0"}, "pci0000:ab"), driver=NIC),
        ),
        train=(request(), request("nic", NIC)),
        constraints=({"matchAttribute": PCIE_ROOT},),
    ),
    ClusterReason(
        "A selector ends with an error",
        slices=(slice_of(gpu("gpu-0"), gpu("gpu-1")),),
        train=(request("gpu", GPU, 1, f'device.attributes["{GPU}"].modell == "H100"'),),
    ),
    ClusterReason(
        "Partitions have used up the GPU",
        since=DRA_GATES_ON,
        slices=(
            slice_of(_partition("mig-0", "40Gi"), _partition("mig-1", "40Gi"), _partition("whole", "80Gi"), slices=2),
            slice_of(
                part="counters", slices=2, sharedCounters=[{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
            ),
        ),
        infer=(request(),),
        train=(request("gpu", GPU, 1, f'device.capacity["{GPU}"].memory.compareTo(quantity("80Gi")) >= 0'),),
    ),
    ClusterReason(
        "A shared device has too little left",
        since=DRA_GATES_ON,
        slices=(
            slice_of(
                {
                    "name": "nic-0",
                    "allowMultipleAllocations": True,
                    "capacity": {
                        "bandwidth": {"value": "100G", "requestPolicy": {"default": "1G", "validRange": {"min": "1G"}}}
                    },
                },
                driver=NIC,
            ),
        ),
        infer=(request("nic", NIC, capacity=_bandwidth("70G")),),
        train=(request("nic", NIC, capacity=_bandwidth("50G")),),
    ),
)
