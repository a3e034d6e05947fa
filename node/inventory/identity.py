"""Remembers identities: the UUID of the GPU, and the interfaces of the NIC, last seen at each PCI address.

A GPU that is lost when the agent starts does not show its UUID, which is its id for the kubelet; a NIC whose interface
is in a pod does not show what rules select by. Without memory, running pods would hold ids that nobody offers. The file
only helps: damaged, missing or unwritable, it never stops the agent, and it is rebuilt by the next scan that sees the
devices.

Both are in one record, since they are learned, lost and written together. No pod outlives a boot, and so what NICs had
in an earlier one is not recalled, nor which GPUs were replaced in it: a pod may still have one of those by its old
UUID, and with that the device files of the one in its place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from node.files import FileError, JsonValue, RecordSchemaUnknown, read_record, write_record
from node.inventory.facts import NodeFacts
from node.inventory.model import Device, DeviceKind, is_gone
from node.inventory.nics.memory import RememberedNic, lasting, nics_from_data, nics_to_data
from node.inventory.nics.parts import nics_to_remember
from node.values import Value, value

log = logging.getLogger("ostler.inventory")

SCHEMA = "ostler.dev/identities/v1"
_FORMER = 64
"""Most replaced GPUs that are remembered, all of one boot."""


@value
class Identities(Value):
    """The identities of GPUs and NICs that outlive a scan.

    ``pairs``: PCI address and UUID of every GPU ever seen, sorted by address; one UUID per address, one address per
    UUID. ``nics``: what functions with a kernel driver have or last had, sorted by address. ``former``: UUID and PCI
    address of GPUs that were replaced since the boot, oldest first.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    nics: tuple[RememberedNic, ...] = ()
    former: tuple[tuple[str, str], ...] = ()

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

    def updated(self, devices: Iterable[Device], facts: NodeFacts | None) -> Identities:
        """The identities updated from these devices and facts; a GPU that moved is forgotten in its old slot.

        ``facts``: None if only GPUs were read, which leaves what is known of NICs as it is.
        """
        gpus = (device for device in devices if device.kind is DeviceKind.GPU and not is_gone(device))
        seen = {gpu.pci_address: gpu.uuid for gpu in gpus if gpu.pci_address and gpu.uuid}
        moved = set(seen.values())
        kept = {address: uuid for address, uuid in self.pairs if uuid not in moved}
        replaced = {uuid: address for address, uuid in kept.items() if address in seen}
        former = {uuid: address for uuid, address in self.former if uuid not in moved} | replaced
        # An address may carry another GPU now, and a UUID may only be at one address.
        pairs = tuple(sorted({**kept, **seen}.items()))
        nics = self.nics if facts is None else nics_to_remember(self.nics, facts)
        return Identities(pairs, nics, tuple(former.items())[-_FORMER:])

    @property
    def lasting(self) -> Identities:
        """The part whose changes are worth a write to the disk."""
        return Identities(self.pairs, lasting(self.nics), self.former)


class IdentityStore:
    """Identities on disk; used by one thread at a time. ``path`` None keeps them in memory only.

    ``boot``: the kernel's id of this boot; empty where it is unknown: then NICs are recalled in any boot.
    """

    def __init__(self, path: Path | None, boot: str = "") -> None:
        self._path = path
        self._boot = boot
        self._identities: Identities | None = None
        self._on_disk: Identities | None = None
        self._complained = False

    def load(self) -> Identities:
        """Return the identities; reads the file at the first call, never raises."""
        on_disk = self._recalled()
        return on_disk if self._identities is None else self._identities

    def save(self, identities: Identities) -> None:
        """Remember; writes the file only when something changed, never raises, tries again at the next call."""
        on_disk = self._recalled()
        self._identities = identities
        if self._path is None or identities == on_disk:
            return
        if identities.lasting == on_disk.lasting:
            self._on_disk = identities
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_record(self._path, SCHEMA, self._data(identities))
        except (FileError, OSError) as error:
            if not self._complained:
                log.warning(
                    "device identities cannot be written, they are kept in memory until they can",
                    extra={"path": str(self._path), "error": str(error)},
                )
            self._complained = True
            return
        self._on_disk = identities
        self._complained = False

    def _recalled(self) -> Identities:
        """The identities on the disk."""
        if self._on_disk is None:
            self._on_disk = self._read()
        return self._on_disk

    def _read(self) -> Identities:
        if self._path is None:
            return Identities()
        try:
            return self._parsed(read_record(self._path, SCHEMA))
        except RecordSchemaUnknown as error:
            log.warning("device identities of another version are not used", extra={"error": str(error)})
            self._path = None  # A newer agent's file must survive a downgrade.
        except FileError as error:
            log.warning("cannot read device identities; the agent gathers them again", extra={"error": str(error)})
        return Identities()

    def _data(self, identities: Identities) -> JsonValue:
        return {
            "gpus": dict(identities.pairs),
            "nics": nics_to_data(identities.nics),
            "former": dict(identities.former),
            "boot": self._boot,
        }

    def _parsed(self, data: JsonValue) -> Identities:
        """Identities out of a record; an entry of the wrong form is dropped."""
        found = data if isinstance(data, dict) else {}
        recalled = not self._boot or found.get("boot") == self._boot
        return Identities(
            tuple(sorted(_texts(found.get("gpus")))),
            nics_from_data(found.get("nics")) if recalled else (),
            _texts(found.get("former")) if recalled else (),
        )


def _texts(data: JsonValue) -> tuple[tuple[str, str], ...]:
    pairs = data.items() if isinstance(data, dict) else ()
    return tuple((key, text) for key, text in pairs if isinstance(text, str))
