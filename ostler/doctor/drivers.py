"""Checks of drivers of GPUs: NVIDIA's by checks of its own, those of vendors that say how by one that fits all."""

from __future__ import annotations

from collections.abc import Sequence

from node.inventory.facts import PciFunction, SysfsFacts
from node.inventory.vendor import DriverCheck, Vendor
from node.inventory.vendors import VENDORS
from ostler.doctor import nvidia_files, nvml
from ostler.doctor.check import Check, CheckFinding, CheckSubject, failed, ok, several, skipped, warning
from ostler.doctor.node import NodeView


def judge_driver(vendor: Vendor, gpus: Sequence[PciFunction], sysfs: SysfsFacts) -> CheckFinding:
    """Whether a vendor's GPUs can compute: bound to its driver, with the device files that it makes."""
    title, drivers, check = vendor.title, " or ".join(vendor.drivers), vendor.check
    assert check is not None
    if not gpus:
        return skipped(f"no {title} GPU on the PCI bus")
    usable = [gpu for gpu in gpus if gpu.driver in vendor.drivers]
    if not usable:
        if all(gpu.driver == "vfio-pci" for gpu in gpus):
            return skipped(f"every {title} GPU is bound to vfio-pci")
        fix = f"install the driver and run 'modprobe {vendor.drivers[0]}'"
        return failed(f"{len(gpus)} {title} GPUs, none bound to {drivers}", fix)
    if check.control and not any(file.path == check.control for file in sysfs.device_files):
        effect, fix = check.without_control
        return failed(f"{check.control} is missing: {effect}", fix)
    nodes = {each.address: each.nodes for each in sysfs.accelerators}
    blind = [
        gpu.address
        for gpu in usable
        if not any(name.startswith(check.node) for name in (*gpu.drm, *nodes.get(gpu.address, ())))
    ]
    if blind:
        fix = f"see 'dmesg' for {vendor.drivers[0]}; initialising the GPU failed"
        return warning(f"no {check.node_name} for {several(blind)}", fix)
    there = f", {check.control} is there" if check.control else ""
    return ok(f"{len(usable)} {title} GPUs are bound to {drivers}{there}")


def _check(vendor: Vendor, check: DriverCheck) -> Check:
    def examine(view: NodeView) -> CheckFinding:
        return judge_driver(vendor, view.gpu_functions(vendor.pci_vendor), view.facts().sysfs or SysfsFacts())

    drivers = " or ".join(vendor.drivers)
    needed = f"`{check.control}` and {check.node_name}s" if check.control else f"an {check.node_name}"
    return Check(
        f"{vendor.name}-driver",
        f"{vendor.title} GPUs are bound to {drivers}, with {needed}",
        f"Run `modprobe {vendor.drivers[0]}`; see `dmesg`",
        examine,
        hardware=True,
    )


SUBJECT = CheckSubject(
    "drivers",
    (
        *nvml.DRIVER_CHECKS,
        *nvml.CHECKS,
        *nvidia_files.CHECKS,
        nvidia_files.RUNTIME_CHECK,
        *(_check(vendor, vendor.check) for vendor in VENDORS if vendor.check is not None),
    ),
)
