"""The claims that the kubelet knows: which pods use them, and which devices its drivers prepared for them.

Everything here but ``prepared`` is in ``dra_manager_state``, which is written whole after every change that must
survive; after a restart no claim counts as prepared. A state file that cannot be read stops the kubelet, as in real
ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from node.kubelet import dra_state
from node.kubelet.dra_state import FILE_NAME, DeviceState, DraState, DraStateError
from node.opening import KUBELET_STATE, read_regular
from sandbox.kubelet.dra.settings import Object
from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.statefiles import write_state


@dataclass(slots=True)
class CachedClaim:
    """One claim; ``drivers`` holds the devices of each driver in the order of its answers."""

    uid: str
    name: str
    namespace: str
    pods: set[str] = field(default_factory=set)
    drivers: dict[str, list[DeviceState]] = field(default_factory=dict)
    prepared: bool = False

    def cdi_devices(self, request: str) -> tuple[str, ...]:
        """The CDI names for a request, all of them for an empty one."""
        return tuple(
            name
            for devices in self.drivers.values()
            for device in devices
            if not request or not device.requests or request in device.requests
            for name in device.cdi_devices or ()
        )


class ClaimCache:
    """All claims by namespace and name; read from ``folder`` at once. Raises ``KubeletError``."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._claims: dict[tuple[str, str], CachedClaim] = {}
        try:
            if not self._path.exists():
                self.write()
            state = dra_state.decode(read_regular(self._path, KUBELET_STATE))
        except (DraStateError, OSError) as error:
            raise KubeletError(
                "create ResourceClaim cache: GetOrCreate() on checkpoint state: "
                f"failed to get checkpoint {FILE_NAME}: {error}"
            ) from error
        for entry in state.claims or ():
            self.add(_restored(entry))

    def get(self, namespace: str, name: str) -> CachedClaim | None:
        """The claim of that name."""
        return self._claims.get((namespace, name))

    def add(self, claim: CachedClaim) -> None:
        """Know a claim from now on."""
        self._claims[claim.namespace, claim.name] = claim

    def remove(self, namespace: str, name: str) -> None:
        """Forget a claim; an unknown one is no error."""
        self._claims.pop((namespace, name), None)

    def all(self) -> tuple[CachedClaim, ...]:
        """All claims in the order in which they became known."""
        return tuple(self._claims.values())

    def write(self) -> None:
        """Write the state file; raises OSError."""
        entries = tuple(_entry(claim) for claim in self._claims.values())
        write_state(self._path, dra_state.encode(DraState(entries)), durable=True)

    def of_pods_but(self, active: Iterable[str]) -> dict[str, list[CachedClaim]]:
        """The claims of every pod that is not in ``active``, by pod UID."""
        known = set(active)
        found: dict[str, list[CachedClaim]] = {}
        for claim in self._claims.values():
            for pod in sorted(claim.pods - known):
                found.setdefault(pod, []).append(claim)
        return found


def claim_of(claim: Object) -> CachedClaim:
    """What is known of a claim of the API before it is prepared; raises ``KubeletError`` unless it is allocated."""
    metadata = claim["metadata"]
    allocation = claim.get("status", {}).get("allocation")
    if not allocation:
        raise KubeletError(f"ResourceClaim {metadata['name']}: not allocated")
    results = allocation.get("devices", {}).get("results") or ()
    drivers: dict[str, list[DeviceState]] = {result["driver"]: [] for result in results}
    return CachedClaim(metadata["uid"], metadata["name"], metadata["namespace"], drivers=drivers)


def _restored(entry: dra_state.ClaimInfo) -> CachedClaim:
    drivers = {driver: list(devices or ()) for driver, devices in (entry.drivers or {}).items()}
    return CachedClaim(entry.uid, entry.name, entry.namespace, set(entry.pods or ()), drivers)


def _entry(claim: CachedClaim) -> dra_state.ClaimInfo:
    drivers = {driver: tuple(devices) or None for driver, devices in claim.drivers.items()}
    return dra_state.ClaimInfo(claim.uid, claim.name, claim.namespace, tuple(sorted(claim.pods)), drivers)
