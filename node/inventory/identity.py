"""Remembered identities: which UUID the GPU at a PCI address had when the driver last told it.

A GPU that is lost when the agent starts cannot tell its UUID, and the UUID is its id towards the kubelet: without
memory, running pods would hold an id that nobody offers. The file is a help and not a truth: damaged, missing or
unwritable, it never stops the agent, and it is rebuilt by the next scan that sees the GPUs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from node.files import FileError, JsonValue, RecordSchemaUnknown, read_record, write_record
from node.inventory.model import Device, DeviceKind
from node.values import Value, value

log = logging.getLogger("ostler.inventory")

SCHEMA = "ostler.dev/identities/v1"


@value
class Identities(Value):
    """PCI address and UUID of every GPU ever seen, sorted by address; one UUID per address, one address per UUID."""

    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """All remembered addresses, sorted."""
        return tuple(address for address, _ in self.pairs)

    def uuid_of(self, address: str | None) -> str | None:
        """The UUID remembered for an address."""
        return next((uuid for known, uuid in self.pairs if known == address), None)

    def address_of(self, uuid: str | None) -> str | None:
        """The address at which a UUID was last seen."""
        return next((address for address, known in self.pairs if known == uuid), None)

    def learned(self, devices: Iterable[Device]) -> Identities:
        """With what these devices tell; a GPU that moved to another slot is forgotten in its old one."""
        seen = {
            device.pci_address: device.uuid
            for device in devices
            if device.kind is DeviceKind.GPU and device.pci_address and device.uuid
        }
        moved = set(seen.values())
        kept = {address: uuid for address, uuid in self.pairs if uuid not in moved}
        # An address may carry another GPU now, and a UUID may only be at one address.
        return Identities(tuple(sorted({**kept, **seen}.items())))


class IdentityStore:
    """Identities on disk; used by one thread at a time. ``path`` None keeps them in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._identities: Identities | None = None
        self._on_disk: Identities | None = None
        self._complained = False

    def load(self) -> Identities:
        """What is remembered; reads the file at the first call, never raises."""
        if self._identities is None:
            self._identities = self._on_disk = self._read()
        return self._identities

    def save(self, identities: Identities) -> None:
        """Remember; writes the file only when something changed, never raises, tries again at the next call."""
        self.load()
        self._identities = identities
        if self._path is None or identities == self._on_disk:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_record(self._path, SCHEMA, {"gpus": dict(identities.pairs)})
        except (FileError, OSError) as error:
            if not self._complained:
                log.warning(
                    "GPU identities cannot be written, they are kept in memory until they can",
                    extra={"path": str(self._path), "error": str(error)},
                )
            self._complained = True
            return
        self._on_disk = identities
        self._complained = False

    def _read(self) -> Identities:
        if self._path is None:
            return Identities()
        try:
            return _parsed(read_record(self._path, SCHEMA))
        except RecordSchemaUnknown as error:
            log.warning("GPU identities of another version are not used", extra={"error": str(error)})
            self._path = None  # A newer agent's file must survive a downgrade.
        except FileError as error:
            log.warning("GPU identities cannot be read, they are gathered anew", extra={"error": str(error)})
        return Identities()


def _parsed(data: JsonValue) -> Identities:
    """Identities out of a record; what has not the right form is not remembered."""
    gpus = data.get("gpus") if isinstance(data, dict) else None
    pairs = gpus.items() if isinstance(gpus, dict) else ()
    return Identities(tuple(sorted((address, uuid) for address, uuid in pairs if isinstance(uuid, str))))
