"""How a pool stands: what is wanted, what is there, and why the two differ."""

from __future__ import annotations

from node.values import Value, value

Layout = tuple[tuple[str, ...], ...]


@value
class PoolStatus(Value):
    """``wanted`` and ``stored``: names of devices by index of slice. ``error``: the last one, empty when all went well.

    ``in_order``: what is stored is what is wanted, as far as the server keeps it. ``dropped``: feature gates without
    which something of what is wanted was not stored ("unknown" where none explains it).
    """

    name: str
    generation: int = 0
    wanted: Layout = ()
    stored: Layout = ()
    in_order: bool = False
    error: str = ""
    dropped: tuple[str, ...] = ()
