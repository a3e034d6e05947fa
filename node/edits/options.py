"""How devices are given to containers, as one frozen value that a rule carries.

Names follow NVIDIA's device plugin, whose users know them; where it has none, CDI's.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from node.values import Value, replace, value


class ListStrategy(StrEnum):
    """How a container learns of its devices; several strategies add up."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"

    @property
    def uses_cdi(self) -> bool:
        """Whether devices are named by their CDI names."""
        return self in (ListStrategy.CDI_ANNOTATIONS, ListStrategy.CDI_CRI)


class IdStrategy(StrEnum):
    """What names a device inside the container's environment: its UUID or the driver's index."""

    UUID = "uuid"
    INDEX = "index"


class CdiMode(StrEnum):
    """Whose CDI spec describes the devices."""

    DELEGATE = "delegate"
    """A spec that the vendor's tool made (nvidia-ctk): only its names are used, after checking that they exist."""
    FULL = "full"
    """Our spec: device nodes, driver libraries, binaries and the vendor's hooks."""
    NODES = "nodes"
    """Our spec with device nodes and environment only: the image must bring or be given the driver's libraries."""


@value
class EditOptions(Value):
    """Options of one resource.

    ``device_specs``: device nodes in the answer itself (ignored where every strategy is CDI).
    ``driver_root``, ``dev_root``: host folders that hold the driver's files and ``/dev``.
    ``hook``: host path of nvidia-cdi-hook, needed by the mode ``full``.
    ``features``: of ``gdrcopy``, ``gds``, ``mofed``. ``imex_channels``: numbers of IMEX channels to give.
    ``rdma``: give a NIC's RDMA device nodes, too. ``vhost_net``: give /dev/vhost-net and /dev/net/tun with a NIC.
    ``nccl``: name a NIC in the variables of NCCL, which claims alone can ask for.
    ``mps``: the host folder of MPS and the resource, for containers with a share; None without MPS.
    """

    strategies: tuple[ListStrategy, ...] = (ListStrategy.ENVVAR,)
    ids: IdStrategy = IdStrategy.UUID
    device_specs: bool = True
    cdi_mode: CdiMode = CdiMode.NODES
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    driver_root: str = "/"
    dev_root: str = "/"
    hook: str | None = None
    features: tuple[str, ...] = ()
    imex_channels: tuple[int, ...] = ()
    imex_required: bool = False
    rdma: bool = False
    vhost_net: bool = False
    nccl: bool = False
    mps: tuple[str, str] | None = None

    @property
    def of_resource(self) -> EditOptions:
        """Without what each device of a resource may have of its own."""
        return replace(self, rdma=False, vhost_net=False) if self.rdma or self.vhost_net else self

    @property
    def uses_cdi(self) -> bool:
        """Whether any strategy names devices by CDI."""
        return any(strategy.uses_cdi for strategy in self.strategies)

    @property
    def gives_device_specs(self) -> bool:
        """Whether device nodes are part of the answer itself."""
        return self.device_specs and not all(strategy.uses_cdi for strategy in self.strategies)

    def annotations(self, key: str, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """The annotation that tells a runtime these CDI names, where the strategy is in use; none for no names."""
        # An empty list would be read as one invalid name.
        if ListStrategy.CDI_ANNOTATIONS not in self.strategies or not names:
            return ()
        return ((f"{self.cdi_annotation_prefix}{key}", ",".join(names)),)


def by_cdi(options: EditOptions) -> EditOptions:
    """The same options with CDI as the one way of giving devices, which is the DRA door's."""
    return replace(options, strategies=(ListStrategy.CDI_CRI,))
