"""Container edits as values: the common ground of an Allocate answer and a CDI spec.

The field names are CDI's. Paths on the host are host paths, not those the agent itself sees.
"""

from __future__ import annotations

from node.values import Value, quick, value


@quick
@value
class NodeEdit(Value):
    """A device node: path in the container, path on the host, permissions out of ``rwm``.

    ``numbers``: major and minor of one that the host has no file of, which only CDI can give.
    """

    path: str
    host_path: str
    permissions: str = "rw"
    numbers: tuple[int, int] | None = None


@value
class MountEdit(Value):
    """A bind mount with its options (``ro``, ``nosuid``, ``nodev``, ``bind``, ...)."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()

    @property
    def read_only(self) -> bool:
        """Whether the container may not write."""
        return "ro" in self.options


@value
class HookEdit(Value):
    """An OCI hook: stage (``createContainer``, ...), program and arguments with the program's name first."""

    stage: str
    path: str
    arguments: tuple[str, ...] = ()


@value
class ContainerEdits(Value):
    """What changes in a container; ``env`` as pairs, in order, names unique."""

    env: tuple[tuple[str, str], ...] = ()
    nodes: tuple[NodeEdit, ...] = ()
    mounts: tuple[MountEdit, ...] = ()
    hooks: tuple[HookEdit, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    cdi_devices: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether a container would not notice these edits."""
        return self == ContainerEdits()
