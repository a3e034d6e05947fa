"""Facts without what identifies the machine, for bug reports.

Serial numbers, UUIDs of GPUs, MIG devices and fabric clusters, and board part numbers are replaced wherever they occur,
also inside other texts (CDI names, errors), by made-up ones of the same shape. Equal ones stay equal, so everything
that refers to something else still does. With one salt the result is always the same; without it the originals cannot
be computed back, however few serial numbers there are.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace

from node.inventory.facts import GpuFacts, NodeFacts

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SHORTEST = 6
"""Characters: a shorter serial (``0`` on some boards) is not looked for in other texts, where it may be anything."""


def anonymize(facts: NodeFacts, salt: str | None = None) -> NodeFacts:
    """The same facts with made-up serials, UUIDs and board part numbers; ``salt`` None is a random one.

    A UUID of zeros means none and stays.
    """
    disguise = _Disguise(secrets.token_hex(16) if salt is None else salt, facts)
    gpus = facts.nvml.gpus if facts.nvml is not None else ()
    hidden = tuple(
        replace(gpu, serial=disguise.shaped(gpu.serial), board_part_number=disguise.shaped(gpu.board_part_number))
        for gpu in gpus
    )
    if facts.nvml is not None:
        facts = replace(facts, nvml=replace(facts.nvml, gpus=hidden))
    changed = _mapped(facts, disguise.text)
    assert isinstance(changed, NodeFacts)
    return changed


class _Disguise:
    """Replaces texts; made for one node's facts, whose serials it knows."""

    def __init__(self, salt: str, facts: NodeFacts) -> None:
        self._salt = salt.encode()
        gpus = facts.nvml.gpus if facts.nvml is not None else ()
        known = {secret: self._made_up(secret) for gpu in gpus for secret in _secrets(gpu)}
        # Longest first, so that one which contains another is replaced as a whole.
        long = sorted((secret for secret in known if len(secret) >= _SHORTEST), key=len, reverse=True)
        self._known = known
        self._made = frozenset(known.values())
        self._anywhere = re.compile("|".join(map(re.escape, long))) if long else None

    def shaped(self, secret: str | None) -> str | None:
        """A made-up serial or part number of the same shape."""
        return None if secret is None else self._known[secret]

    def text(self, text: str) -> str:
        """A text with every UUID and known secret in it replaced."""
        if text in self._made:
            return text
        text = _UUID.sub(self._uuid, text)
        if self._anywhere is not None:
            text = self._anywhere.sub(lambda match: self._known[match.group()], text)
        return text

    def _uuid(self, match: re.Match[str]) -> str:
        uuid = match.group()
        if not uuid.strip("0-"):
            return uuid
        digits = hashlib.blake2b(uuid.lower().encode(), key=self._key, digest_size=16).hexdigest()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _made_up(self, secret: str) -> str:
        """Digits for digits and letters for letters, all else as it is; never the secret itself."""
        for attempt in range(256):
            stream = _stream(self._key, f"{attempt}:{secret}")
            made = "".join(_same_kind(character, next(stream)) for character in secret)
            if made != secret:
                return made
        return secret  # Nothing in it is a letter or digit: there is nothing to hide.

    @property
    def _key(self) -> bytes:
        return hashlib.blake2b(self._salt, digest_size=32).digest()


def _secrets(gpu: GpuFacts) -> Iterator[str]:
    return (secret for secret in (gpu.serial, gpu.board_part_number) if secret is not None)


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


def _mapped(value: object, change: Callable[[str], str]) -> object:
    """The value with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple):
        return tuple([_mapped(item, change) for item in value])
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _mapped(getattr(value, field.name), change) for field in fields(value)})
    return value
