"""Removes what identifies the machine from facts, for bug reports.

These are replaced wherever they occur, also inside other texts (CDI names, interface names, errors): serial numbers,
board part numbers, UUIDs of GPUs, MIG devices, NICs and fabric clusters, unique ids, MAC addresses, GUIDs and the
node's own addresses. Equal originals get equal replacements, so references between facts still hold.

Replacements have the shape of the original. Hardware addresses keep their vendor's part, which is a fact about the card
and not about the machine, and a GUID that was made of a MAC address is made of the replaced MAC address. Numbers are
permuted (a Feistel network), so that no two become one. One salt always gives the same result; without it the originals
cannot be computed back, however few there are.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace

from node.inventory.facts import NodeFacts, NvmlFacts, SysfsFacts
from node.inventory.net_facts import NetworkFacts

_SHORTEST = 6
"""Characters: a shorter serial (``0`` on some boards) is not replaced in other texts, where it may be anything."""


def anonymize(facts: NodeFacts, salt: str | None = None) -> NodeFacts:
    """The same facts with made-up identities; ``salt`` None is a random one.

    Zeros mean none and stay. IPv4 addresses become ones in 10.0.0.0/8, IPv6 addresses ones in 2001:db8::/32; prefix
    lengths, the vendor's part of MAC addresses, firmware's names and versions stay.
    """
    disguise = Disguise(os.urandom(16).hex() if salt is None else salt)
    serials = _Serials(disguise, facts)
    facts = replace(
        facts,
        nvml=_nvml(facts.nvml, serials) if facts.nvml is not None else None,
        sysfs=_sysfs(facts.sysfs, disguise, serials) if facts.sysfs is not None else None,
        network=_network(facts.network, disguise) if facts.network is not None else None,
    )
    changed = _mapped(facts, serials.text)
    assert isinstance(changed, NodeFacts)
    return changed


def _nvml(nvml: NvmlFacts, serials: _Serials) -> NvmlFacts:
    gpus = tuple(
        replace(gpu, serial=serials.shaped(gpu.serial), board_part_number=serials.shaped(gpu.board_part_number))
        for gpu in nvml.gpus
    )
    return replace(nvml, gpus=gpus)


def _sysfs(sysfs: SysfsFacts, disguise: Disguise, serials: _Serials) -> SysfsFacts:
    interfaces = tuple(
        replace(each, switch_id=disguise.digits(each.switch_id)) if each.switch_id else each
        for each in sysfs.interfaces
    )
    amd_gpus = tuple(
        replace(
            gpu,
            serial=serials.shaped(gpu.serial),
            unique_id=disguise.hexadecimal(gpu.unique_id) if gpu.unique_id else gpu.unique_id,
        )
        for gpu in sysfs.amd_gpus
    )
    kfd = tuple(
        replace(node, unique_id=disguise.number(node.unique_id, 64)) if node.unique_id else node for node in sysfs.kfd
    )
    return replace(sysfs, interfaces=interfaces, amd_gpus=amd_gpus, kfd=kfd)


def _network(network: NetworkFacts, disguise: Disguise) -> NetworkFacts:
    addresses = tuple(replace(each, address=disguise.host_address(each.address)) for each in network.addresses)
    return replace(network, addresses=addresses)


class _Serials:
    """One node's serial and part numbers with their replacements."""

    def __init__(self, disguise: Disguise, facts: NodeFacts) -> None:
        self._disguise = disguise
        known = {secret: disguise.made_up(secret) for secret in _secrets(facts)}
        # Longest first, so that one which contains another is replaced as a whole.
        long = sorted((secret for secret in known if len(secret) >= _SHORTEST), key=len, reverse=True)
        self._known = known
        self._made = frozenset(known.values())
        self._anywhere = re.compile("|".join(map(re.escape, long))) if long else None

    def shaped(self, secret: str | None) -> str | None:
        """A made-up serial or part number of the same shape."""
        return None if secret is None else self._known[secret]

    def text(self, text: str) -> str:
        """A text with every address, UUID and known serial in it replaced."""
        if text in self._made:
            return text
        text = self._disguise.addresses(text)
        if self._anywhere is not None:
            text = self._anywhere.sub(lambda match: self._known[match.group()], text)
        return text


def _secrets(facts: NodeFacts) -> list[str]:
    found: list[str | None] = []
    for gpu in facts.nvml.gpus if facts.nvml is not None else ():
        found += [gpu.serial, gpu.board_part_number]
    for amd in facts.sysfs.amd_gpus if facts.sysfs is not None else ():
        found.append(amd.serial)
    for function in facts.sysfs.pci if facts.sysfs is not None else ():
        found.append(function.vpd_uuid or None)
    return [secret for secret in found if secret is not None]


def _mapped(value: object, change: Callable[[str], str]) -> object:
    """The value with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple):
        return tuple([_mapped(item, change) for item in value])
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _mapped(getattr(value, field.name), change) for field in fields(value)})
    return value


_HEX = "[0-9a-fA-F]"
_UUID = re.compile(rf"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}")
_PAIRS = re.compile(rf"(?<![0-9a-fA-F:]){_HEX}{{2}}(?::{_HEX}{{2}}){{5,19}}(?![0-9a-fA-F:])")
_GUID = re.compile(rf"(?<![0-9a-fA-F:]){_HEX}{{4}}(?::{_HEX}{{4}}){{3}}(?![0-9a-fA-F:])")
_NAMED = re.compile(r"(?<![0-9A-Za-z])((?:en|eth|ib|wl|sl|ww|roce|iw|opa)x)([0-9a-f]{16}|[0-9a-f]{12})(?![0-9a-f])")
"""Names that udev makes of a MAC address (``enx0c42a1123456``), and rdma-core of a GUID."""

_LOCAL, _GROUP = 0b10, 0b01
"""Bits of a MAC address's first octet: made up by the machine itself, and for several receivers."""
_ROUNDS = 6


class Disguise:
    """Replacements by one salt."""

    def __init__(self, salt: str) -> None:
        self._key = hashlib.blake2b(salt.encode(), digest_size=32).digest()

    def addresses(self, text: str) -> str:
        """A text with every UUID, MAC address and GUID in it replaced."""
        text = _UUID.sub(self._uuid, text)
        text = _PAIRS.sub(lambda match: self._pairs(match.group()), text)
        text = _GUID.sub(lambda match: self._grouped(match.group()), text)
        return _NAMED.sub(lambda match: match[1] + self.digits(match[2]), text)

    def digits(self, address: str) -> str:
        """A MAC address (12 hex digits) or a GUID (16) without separators; anything else as ``made_up`` makes it."""
        if not re.fullmatch(f"{_HEX}{{12}}|{_HEX}{{16}}", address):
            return self.made_up(address)
        octets = bytes.fromhex(address)
        return (self._mac(octets) if len(octets) == 6 else self._guid(octets)).hex()

    def number(self, number: int, bits: int) -> int:
        """A permutation of the numbers with that many bits; 0 stays, for it means none."""
        if not 0 < number < 1 << bits:
            return number
        while True:
            number = self._permuted(f"number {bits}", number, bits)
            if number:
                return number

    def hexadecimal(self, text: str) -> str:
        """A number of 64 bits in 16 hexadecimal digits, replaced as ``number`` does it."""
        return f"{self.number(int(text, 16), 64):016x}" if re.fullmatch(f"{_HEX}{{16}}", text) else self.made_up(text)

    def host_address(self, text: str) -> str:
        """An address with its prefix length: in 10.0.0.0/8 or 2001:db8::/32, one network for one network."""
        from ipaddress import IPv4Interface, IPv6Interface, ip_interface  # Costs 5 ms; an agent never needs it.

        try:
            interface = ip_interface(text)
        except ValueError:
            return self.made_up(text)
        whole, fixed, top = (32, 8, 10) if interface.version == 4 else (128, 32, 0x20010DB8)
        length = interface.network.prefixlen
        host_bits = whole - max(length, fixed)
        network_bits = whole - fixed - host_bits
        number, network = int(interface.ip), int(interface.network.network_address)
        made = top << network_bits | self._hashed(f"network {network}/{length}", network_bits)
        own = self._permuted(f"host {network}/{length}", number & (1 << host_bits) - 1, host_bits)
        kind = IPv4Interface if interface.version == 4 else IPv6Interface
        return str(kind((made << host_bits | own, length)))

    def made_up(self, secret: str) -> str:
        """Digits for digits and letters for letters, all else as it is; never the secret itself."""
        for attempt in range(256):
            stream = _stream(self._key, f"{attempt}:{secret}")
            made = "".join(_same_kind(character, next(stream)) for character in secret)
            if made != secret:
                return made
        return secret  # It has no letter or digit, so there is nothing to hide.

    def _uuid(self, match: re.Match[str]) -> str:
        uuid = match.group()
        if not uuid.strip("0-"):
            return uuid
        digits = hashlib.blake2b(uuid.lower().encode(), key=self._key, digest_size=16).hexdigest()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _pairs(self, text: str) -> str:
        """A MAC address, or an IPoIB hardware address, which ends in a GUID."""
        octets = bytes.fromhex(text.replace(":", ""))
        if len(octets) == 6:
            return self._mac(octets).hex(":")
        if len(octets) == 20:
            return (octets[:12] + self._guid(octets[12:])).hex(":")
        return text

    def _grouped(self, text: str) -> str:
        digits = self._guid(bytes.fromhex(text.replace(":", ""))).hex()
        return ":".join(digits[start : start + 4] for start in range(0, 16, 4))

    def _mac(self, octets: bytes) -> bytes:
        return octets if not any(octets) or octets[0] & _GROUP else self._card(octets)

    def _guid(self, octets: bytes) -> bytes:
        """A GUID is a MAC address with two octets between: ff:fe (and one bit flipped), or what the vendor likes."""
        if not any(octets):
            return octets
        flipped = _LOCAL if octets[3:5] == b"\xff\xfe" else 0
        made = self._card(bytes((octets[0] ^ flipped, *octets[1:3], *octets[5:])))
        return bytes((made[0] ^ flipped, *made[1:3], *octets[3:5], *made[3:]))

    def _card(self, octets: bytes) -> bytes:
        """A MAC address with another card's number; one that no vendor assigned keeps its first octet only."""
        kept = 1 if octets[0] & _LOCAL else 3
        bits = 8 * (6 - kept)
        own = self._permuted(f"mac {octets[:kept].hex()}", int.from_bytes(octets[kept:], "big"), bits)
        return octets[:kept] + own.to_bytes(6 - kept, "big")

    def _permuted(self, seed: str, number: int, bits: int) -> int:
        """A permutation of 0 .. 2**bits - 1: Feistel rounds, walked on where an odd number of bits is left."""
        half = (bits + 1) // 2
        mask = (1 << half) - 1
        while bits:
            left, right = number >> half, number & mask
            for turn in range(_ROUNDS):
                left, right = right, left ^ self._hashed(f"{seed} {turn} {right}", half)
            number = left << half | right
            if number < 1 << bits:
                break
        return number

    def _hashed(self, seed: str, bits: int) -> int:
        """So many bits, up to 512, out of ``seed``."""
        return int.from_bytes(hashlib.blake2b(seed.encode(), key=self._key).digest(), "big") & (1 << bits) - 1


def _stream(key: bytes, seed: str) -> Iterator[int]:
    """Endless pseudo-random numbers."""
    block = 0
    while True:
        yield from hashlib.blake2b(f"{block}:{seed}".encode(errors="replace"), key=key).digest()
        block += 1


def _same_kind(character: str, number: int) -> str:
    if not character.isascii() or not character.isalnum():
        return character
    kinds = "0123456789" if character.isdigit() else "abcdefghijklmnopqrstuvwxyz"
    made = kinds[number % len(kinds)]
    return made.upper() if character.isupper() else made
