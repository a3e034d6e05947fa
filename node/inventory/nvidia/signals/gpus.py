"""The GPUs of an NVML session, and their identities."""

from __future__ import annotations

from node.inventory.nvidia.nvml_binding import Binding, CallFailed, Handle
from node.inventory.nvidia.nvml_calls import SESSION_ENDED
from node.inventory.pci import pci_address
from node.values import Value, value


@value
class GpuId(Value):
    """A GPU's address and UUID; one of the two may be missing where it does not answer."""

    uuid: str | None = None
    address: str | None = None


@value
class Gpu(Value):
    """A GPU of the session."""

    id: GpuId
    handle: Handle


class SessionGpus:
    """The GPUs of one session, for one thread.

    The identity that a GPU has reported once holds for the session, also when the GPU is lost.
    """

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._known: dict[int, Gpu] = {}

    @property
    def known(self) -> tuple[Gpu, ...]:
        """Those that the last call of ``listed`` found."""
        return tuple(self._known.values())

    def listed(self) -> tuple[Gpu, ...]:
        """GPUs that have ever had a handle and an identity; only scans report the others.

        Raises CallFailed if NVML does not answer at all.
        """
        count = self._binding.number("nvmlDeviceGetCount")
        if len(self._known) < count:
            for index in range(count):
                self._learn(index)
        return tuple(self._known.values())

    def _learn(self, index: int) -> None:
        if index in self._known:
            return
        try:
            handle = self._binding.handle("nvmlDeviceGetHandleByIndex", index)
        except CallFailed as failed:
            if failed.error in SESSION_ENDED:
                raise
            return
        identity = _identity(self._binding, handle)
        if identity != GpuId():
            self._known[index] = Gpu(identity, handle)


def _identity(binding: Binding, handle: Handle) -> GpuId:
    uuid = address = None
    try:
        uuid = binding.text("nvmlDeviceGetUUID", handle)
    except CallFailed as failed:
        if failed.error in SESSION_ENDED:
            raise
    try:
        address = pci_address(binding.bus_id("nvmlDeviceGetPciInfo", handle))
    except CallFailed as failed:
        if failed.error in SESSION_ENDED:
            raise
    return GpuId(uuid, address)
