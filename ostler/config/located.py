"""An override out of a topology file, whichever format it has: where it stands, and the places that it makes."""

from __future__ import annotations

from node.topology.model import PlaceOverride
from node.values import Value, value
from ostler.config.errors import Origin

MAX_NUMA_NODE = 1023


@value
class Located(Value):
    """An override with the place in the file where it stands."""

    override: PlaceOverride
    origin: Origin


def below(path: tuple[str, ...], switch: str) -> tuple[str, ...]:
    """The path of devices on a switch that hangs below ``path``.

    A switch below another one hangs on a port of that one: without it, two switches on one would be as near to each
    other as two devices on it.
    """
    return (*path, switch) if len(path) == 1 else (*path, f"{switch} uplink", switch)
