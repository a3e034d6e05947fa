"""What the driver of a network function means for its use.

Pure. Names are those of the kernel's drivers. Variants of vfio-pci for one vendor's parts carry ``vfio`` in their names
(``mlx5_vfio_pci``, ``virtio_vfio_pci``, ``hisi-acc-vfio-pci``).
"""

from __future__ import annotations

_UIO = frozenset({"uio_pci_generic", "igb_uio"})
_KEEPERS = frozenset({"pci-stub", "pciback", "xen-pciback"})


def uses_vfio(driver: str | None) -> bool:
    """Whether programs drive the function through /dev/vfio."""
    return driver is not None and "vfio" in driver


def uses_uio(driver: str | None) -> bool:
    """Whether programs drive the function through /dev/uioN."""
    return driver in _UIO


def keeps_away(driver: str | None) -> bool:
    """Whether the driver only keeps others away: for a guest of the hypervisor, or until somebody takes it."""
    return driver in _KEEPERS


def serves_network(driver: str | None) -> bool:
    """Whether it is a driver of the kernel's own network or RDMA stack."""
    return driver is not None and not (uses_vfio(driver) or uses_uio(driver) or keeps_away(driver))
