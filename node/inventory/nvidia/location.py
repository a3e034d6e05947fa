"""Finds the PCI function of each NVIDIA GPU, also of GPUs that do not answer.

A GPU that the driver lost is listed by NVML with nothing but its index, or not at all, while its function is still on
the bus. People need its name and UUID exactly then, so both are found again from the PCI bus and from what was
remembered. NVML numbers GPUs in the order of their PCI addresses; where several GPUs lack an address, that order
matches them with the functions left over.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from node.inventory.facts import GpuFacts, NvmlFacts, PciFunction, SysfsFacts
from node.inventory.identity import Identities
from node.inventory.pci import bus_of, display_mode, pci_address
from node.values import Value, value

NOT_LISTED = "NOT_LISTED"
"""Error of a GPU that is on the PCI bus with its driver bound, and that NVML does not list."""

PCI_VENDOR = "0x10de"
_DRIVER = "nvidia"
_HOST_VGPU = 3


@value
class LocatedGpu(Value):
    """A GPU with its address and PCI function; ``facts.index`` is -1 where NVML does not list it.

    ``recalled``: the UUID is the remembered one, because the driver did not report it.
    """

    facts: GpuFacts
    address: str | None
    function: PciFunction | None
    uuid: str | None
    recalled: bool


def nvidia_functions(sysfs: SysfsFacts | None) -> tuple[PciFunction, ...]:
    """NVIDIA's display functions on the PCI bus, whatever driver they have, by address."""
    found = (function for function in (sysfs.pci if sysfs is not None else ()) if function.vendor.lower() == PCI_VENDOR)
    return tuple(sorted((each for each in found if display_mode(each)), key=attrgetter("address")))


def locate(
    nvml: NvmlFacts, answers: bool, functions: Iterable[PciFunction], identities: Identities
) -> list[LocatedGpu]:
    """Every GPU that NVML lists, and those on the bus that it should list.

    With ``answers`` false (NVML is silent) only remembered GPUs are added: those may be in use by running pods.
    """
    by_address = {function.address: function for function in functions}
    addresses = _addresses(nvml.gpus, by_address, identities)
    gpus = [(gpu, addresses.get(position)) for position, gpu in enumerate(nvml.gpus)]
    taken = {address for _, address in gpus if address is not None}
    for address in _left_over(by_address, taken, nvml.gpus):
        if answers:
            gpus.append((GpuFacts(index=-1, error=NOT_LISTED), address))
        elif identities.uuid_of(address) is not None and not nvml.gpus:
            gpus.append((GpuFacts(index=-1), address))
    return [_located(gpu, address, by_address, identities) for gpu, address in gpus]


def _located(
    gpu: GpuFacts, address: str | None, functions: dict[str, PciFunction], identities: Identities
) -> LocatedGpu:
    recalled = identities.uuid_of(address) if gpu.uuid is None else None
    function = functions.get(address) if address is not None else None
    return LocatedGpu(gpu, address, function, gpu.uuid or recalled, recalled is not None)


def _addresses(gpus: tuple[GpuFacts, ...], functions: dict[str, PciFunction], identities: Identities) -> dict[int, str]:
    """Addresses by position in ``gpus``: as the driver says, else by UUID, else by what is left over on the bus."""
    found: dict[int, str] = {}
    for position, gpu in enumerate(gpus):
        address = pci_address(gpu.bus_id) or identities.address_of(gpu.uuid)
        if address is not None:
            found[position] = address
    missing = [position for position in range(len(gpus)) if position not in found]
    missing.sort(key=lambda position: gpus[position].index)
    taken = set(found.values())
    candidates = _left_over(functions, taken, gpus)
    if not functions:
        # Without sysfs only the remembered UUIDs help, and only if they leave no choice.
        absent = [address for address in identities.addresses if address not in taken]
        candidates = absent if len(absent) == len(missing) else []
    found.update(zip(missing, candidates, strict=False))
    return found


def _left_over(functions: dict[str, PciFunction], taken: set[str], gpus: tuple[GpuFacts, ...]) -> list[str]:
    """Functions that the driver nvidia has and that no listed GPU is, without the virtual ones of vGPU hosts."""
    hosts = (gpu for gpu in gpus if gpu.virtualization_mode == _HOST_VGPU)
    virtual = {bus_of(address) for address in map(pci_address, (gpu.bus_id for gpu in hosts)) if address is not None}
    return [
        address
        for address, function in functions.items()
        if function.driver == _DRIVER and address not in taken and bus_of(address) not in virtual
    ]
