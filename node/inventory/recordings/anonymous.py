"""Facts without what identifies the machine, for bug reports.

Replaced wherever they occur, also inside other texts (CDI names, interface names, errors): serial numbers, board part
numbers, UUIDs of GPUs, MIG devices and fabric clusters, unique ids, MAC addresses, GUIDs and the node's own addresses.
Equal ones stay equal, so everything that refers to something else still does; what is made of a MAC address is made of
its replacement afterwards. With one salt the result is always the same; without it the originals cannot be computed
back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace

from node.inventory.facts import NodeFacts, NvmlFacts, SysfsFacts
from node.inventory.net_facts import NetworkFacts
from node.inventory.recordings.disguise import Disguise

_SHORTEST = 6
"""Characters: a shorter serial (``0`` on some boards) is not looked for in other texts, where it may be anything."""


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
