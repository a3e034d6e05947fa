"""Patterns that select devices, and PCI addresses as people write them.

In a pattern ``*`` stands for any characters and nothing else is special. Each kind of pattern knows the form of the
texts that it is compared with, and refuses a pattern that can never match (``3B:00.0``, ``gpu-...``, ``mig-1g.10gb``)
with the spelling that can.
"""

from __future__ import annotations

import re

from ostler.config.document import shown
from ostler.config.scalars import BadValue, JsonObject, ScalarType

_SPECIAL_ELSEWHERE = "?[]{}^$|\\"
_MAX_LENGTH = 253
_MAX_STARS = 8  # matching takes time with every further one


class Pattern(ScalarType[str]):
    """Text with ``*`` for any characters."""

    example = '"H100*"'
    accepts = "a pattern with * for any characters"

    def from_text(self, text: str) -> str:
        """See ``ValueType``."""
        if not text:
            raise BadValue("is empty", 'write "*" for any, or remove the key')
        if "**" in text:
            raise BadValue(f"is {shown(text)}", "write one * for any characters; ** means the same")
        for character in text:
            if character in _SPECIAL_ELSEWHERE:
                raise BadValue(
                    f"is {shown(text)}, where {character} has no special meaning",
                    "only * is special: it stands for any characters",
                )
        if len(text) > _MAX_LENGTH or text.count("*") > _MAX_STARS:
            raise BadValue(f"is {shown(text)}", f"write at most {_MAX_LENGTH} characters and {_MAX_STARS} *")
        if "," in text:
            raise BadValue(f"is {shown(text)}, with a comma", "write a list with one pattern per item")
        if text != text.strip() or not text.isprintable():
            raise BadValue(f"is {shown(text)}", "remove control characters and the blanks at its ends")
        self.check(text)
        return text

    def check(self, text: str) -> None:
        """Refuse what can never match; raises ``BadValue``."""
        if ".*" in text:
            raise BadValue(f"is {shown(text)}", "write * alone for any characters; this is not a regular expression")

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "string", "minLength": 1}


class UuidPattern(Pattern):
    """UUIDs as the driver writes them."""

    example = '"GPU-1f5e*"'

    def check(self, text: str) -> None:
        """See ``Pattern``."""
        super().check(text)
        head = text.partition("*")[0]
        starts = any(head.startswith(prefix) or prefix.startswith(head) for prefix in ("GPU-", "MIG-"))
        if not starts or ("*" not in text and len(head) <= len("GPU-")):
            raise BadValue(f"is {shown(text)}, which no UUID matches", "UUIDs begin with GPU- or MIG-")
        rest = text[4:] if len(head) >= 4 else ""
        if not re.fullmatch(r"[0-9a-f*/GPU-]*", rest):
            raise BadValue(
                f"is {shown(text)}, which no UUID matches", "after GPU- or MIG- come only 0-9 and a-f in lower case"
            )


class PciPattern(Pattern):
    """PCI addresses as sysfs writes them: ``0000:3b:00.0``."""

    example = '"0000:3b:*"'

    def check(self, text: str) -> None:
        """See ``Pattern``."""
        if re.fullmatch(r"[0-9a-f*:.]+", text) if "*" in text else parse_address(text) == text:
            return
        raise BadValue(f"is {shown(text)}, which no PCI address matches", spelling(text))


class ProfilePattern(Pattern):
    """MIG profiles (``1g.10gb``, ``1c.3g.40gb``, ``1g.10gb+me``) and partition modes of AMD (``cpx_nps4``)."""

    example = '"1g.*"'

    def check(self, text: str) -> None:
        """See ``Pattern``."""
        if text.lower().startswith("mig-"):
            raise BadValue(f"is {shown(text)}, which no profile matches", "write the profile without 'mig-'")
        plain = re.fullmatch(r"([1-9]c\.)?[1-9]g\.[0-9]+gb([+-][a-z.+-]+)?", text)
        mode = re.fullmatch(r"[sdtqc]px_nps[1248]", text)
        if not (plain or mode or ("*" in text and re.fullmatch(r"[0-9a-z.+*_-]+", text))):
            raise BadValue(
                f"is {shown(text)}, which no profile matches", "write it as the driver does, such as 1g.10gb or 1g.*"
            )


class NamePattern(Pattern):
    """Device names: ``gpu-0000-3b-00-0``."""

    example = '"gpu-0000-3b-*"'

    def check(self, text: str) -> None:
        """See ``Pattern``."""
        super().check(text)
        if not re.fullmatch(r"[a-z0-9*-]+", text):
            raise BadValue(
                f"is {shown(text)}, which no device name matches", "names have a-z, 0-9 and -, see 'ostler devices'"
            )


FORM = r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
"""Accepted in lower case: also without a domain, and with a domain of eight digits as nvidia-smi writes it."""


def parse_address(text: str) -> str | None:
    """The address in sysfs's spelling, ``0000:3b:00.0``; None for other texts."""
    match = re.fullmatch(FORM, text.strip().lower())
    return None if match is None else f"{int(match[1] or '0', 16):04x}:{match[2]}"


def spelling(text: str) -> str:
    """The fix for a text that is not in sysfs's spelling."""
    address = parse_address(text)
    if address is None:
        return "write it as domain:bus:device.function in lower case, such as 0000:3b:00.0"
    return f"write {address}"
