"""Checks of devices. GPUs' drivers: NVIDIA's by checks of its own, those of other vendors by one check for all.

NICs: the right network namespace, none of the node's own given away, one firmware per model.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from node.eligibility import offer
from node.inventory.facts import PciFunction, SysfsFacts
from node.inventory.model import NIC_KINDS, Device, Snapshot
from node.inventory.vendor import DriverCheck, Vendor
from node.inventory.vendors import VENDORS
from node.ledger.offer_context import NOTHING_HELD
from node.offer import Offer
from node.rules import Door, offers_nics
from node.virtual_functions import VfState, VfVerdict, counted, verdicts
from ostler.doctor import mig, mps, nvidia_files, nvml
from ostler.doctor.check import Check, CheckFinding, CheckSubject, failed, joined, ok, several, skipped, warning
from ostler.doctor.node import NodeView


def judge_driver(vendor: Vendor, gpus: Sequence[PciFunction], sysfs: SysfsFacts) -> CheckFinding:
    """Whether a vendor's GPUs can compute: bound to its driver, with the driver's device files."""
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


def _driver_check(vendor: Vendor, check: DriverCheck) -> Check:
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


DRIVERS = CheckSubject(
    "drivers",
    (
        *nvml.DRIVER_CHECKS,
        *nvml.CHECKS,
        *nvidia_files.CHECKS,
        nvidia_files.RUNTIME_CHECK,
        *mps.CHECKS,
        *mig.CHECKS,
        *(_driver_check(vendor, vendor.check) for vendor in VENDORS if vendor.check is not None),
    ),
)


_NO_RULE = "no rule offers NICs"


def judge_namespace(*, wanted: bool, host_network: bool, in_pod: bool) -> CheckFinding:
    """Whether the node's interfaces are visible. ``wanted``: a rule offers NICs."""
    if not wanted:
        return skipped(_NO_RULE)
    if host_network:
        return ok("the host's network namespace")
    fix = "hostNetwork: true in the pod's spec" if in_pod else "run it in the host's network namespace"
    return warning("rules offer NICs, and this is not the host's network namespace: its interfaces cannot be seen", fix)


def judge_host_use(devices: Iterable[Device], shown: Offer) -> CheckFinding:
    """Whether a NIC that the node itself needs is offered; only a rule that names it does so."""
    used = [device for device in devices if device.kind in NIC_KINDS and device.host_use]
    offered = {each.device.name: resource.resource for resource in shown.resources for each in resource.devices}
    given = [
        f"{device.name} ({device.host_use}) as {offered[device.name]}" for device in used if device.name in offered
    ]
    if given:
        fix = "remove its name, address or interface from the rule, unless a pod should get it"
        return warning(f"the node's own NIC is offered, because a rule names it: {several(given, 3)}", fix)
    return ok(
        f"withheld: {several([f'{device.name} ({device.host_use})' for device in used], 3)}"
        if used
        else "none in use by the node"
    )


def judge_virtual_functions(found: Sequence[VfVerdict], refused: str) -> CheckFinding:
    """Whether physical functions have the virtual ones that the configuration asks for, or can get them.

    ``refused``: why this process may not write to sysfs; empty if it may.
    """
    if not found:
        fix = "correct its devices, or turn SR-IOV on in the machine's BIOS and in the NIC's firmware"
        return warning("virtualFunctions selects no NIC with SR-IOV", fix)
    findings = []
    for each in found:
        if each.state in (VfState.DIFFERENT, VfState.REFUSED):
            reason, _, fix = each.reason.rpartition("; ")
            findings.append(warning(f"{counted(each.rule.count)} cannot be made of {each.device.name}: {reason}", fix))
        elif each.state is VfState.TO_MAKE and refused:
            fix = "in the chart set nics.virtualFunctions to true; else run the agent as root with /sys writable"
            findings.append(failed(f"{counted(each.rule.count)} cannot be made of {each.device.name}: {refused}", fix))
    ready = sum(1 for each in found if each.state is VfState.MADE)
    return joined(findings, f"{ready} of {len(found)} physical functions have the virtual functions asked for")


def judge_firmware(devices: Iterable[Device]) -> CheckFinding:
    """Whether physical NICs of one model have one firmware."""
    models: dict[str, dict[str, list[str]]] = {}
    for device in devices:
        firmware = device.text("firmwareVersion")
        model = f"{device.text('pciVendorId')}:{device.text('pciDeviceId')}"
        if device.kind in NIC_KINDS and firmware and len(model) > 1:
            models.setdefault(model, {}).setdefault(firmware, []).append(device.name)
    mixed = {model: versions for model, versions in models.items() if len(versions) > 1}
    if mixed:
        said = [
            f"{model}: " + ", ".join(f"{version} ({several(names, 2)})" for version, names in sorted(versions.items()))
            for model, versions in sorted(mixed.items())
        ]
        return warning(f"NICs of one model have different firmware: {several(said, 2)}", "update them to one version")
    count = sum(len(names) for versions in models.values() for names in versions.values())
    return (
        ok(f"{count} NICs report their firmware, one version for each model")
        if count
        else skipped("no NIC reports its firmware")
    )


def _namespace(view: NodeView) -> CheckFinding:
    wanted = offers_nics(view.settings.rules) and not view.recorded
    return judge_namespace(wanted=wanted, host_network=view.host_network, in_pod=view.in_pod)


def _host_use(view: NodeView) -> CheckFinding:
    if not offers_nics(view.settings.rules):
        return skipped(_NO_RULE)
    devices = view.devices()
    return judge_host_use(devices, offer(Snapshot(1, devices), view.settings.rules, NOTHING_HELD, Door.PLUGIN))


def _virtual_functions(view: NodeView) -> CheckFinding:
    if not view.settings.virtual_functions:
        return skipped("the configuration makes no virtual functions")
    found = verdicts(view.devices(), view.settings.virtual_functions)
    return judge_virtual_functions(found, _unwritable(view, found))


def _unwritable(view: NodeView, found: Sequence[VfVerdict]) -> str:
    """Why this process may not write the numbers of virtual functions; empty if it may."""
    for each in found:
        path = view.sys / "bus/pci/devices" / each.address / "sriov_numvfs"
        if not os.access(path, os.W_OK):
            return f"{path} is not writable"
    return ""


NICS = CheckSubject(
    "nics",
    (
        Check(
            "network-namespace",
            "If rules offer NICs, the agent is in the host's network namespace",
            "Set `hostNetwork: true` in the pod's spec",
            _namespace,
        ),
        Check(
            "nic-host-use",
            "No NIC that the node itself uses is offered to pods",
            "Remove its name from the rule",
            _host_use,
        ),
        Check(
            "virtual-functions",
            "Physical functions have the virtual functions that the configuration asks for, or can get them",
            "Follow the reason; `docs/nics.md` explains each",
            _virtual_functions,
        ),
        Check(
            "nic-firmware",
            "NICs of one model have one firmware version",
            "Update them to one version",
            lambda view: judge_firmware(view.devices()),
        ),
    ),
)
