"""Rules for the texts of names and labels: DNS labels and subdomains (RFC 1123), label keys and values.

Why: the object rules, the allocator's node selectors and CEL's formats all ask them. Each function returns what a text
breaks, in words that follow its value ("must …"), nothing if it is fine; the number of faults is that of the API
server (k8s.io/apimachinery, util/validation). Lengths are bytes of UTF-8. Time is linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import Final

LABEL_BYTES: Final = 63
SUBDOMAIN_BYTES: Final = 253

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_LABEL_KEY: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_KEY_CHARACTERS: Final = "must consist of letters, digits, '-', '_' or '.', with a letter or digit at both ends"


def size(text: str) -> int:
    """Return the length of the text in bytes of UTF-8; a lone surrogate has three."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def label_faults(text: str) -> list[str]:
    """Faults of a DNS label."""
    rule = "must consist of lower case letters, digits or '-', with a letter or digit at both ends"
    return _length_faults(text, LABEL_BYTES) + ([] if _LABEL.fullmatch(text) else [rule])


def subdomain_faults(text: str) -> list[str]:
    """Faults of a DNS subdomain: labels joined by dots."""
    rule = "must consist of lower case letters, digits, '-' or '.', with a letter or digit around each dot"
    return _length_faults(text, SUBDOMAIN_BYTES) + ([] if _SUBDOMAIN.fullmatch(text) else [rule])


def label_key_faults(text: str) -> list[str]:
    """Faults of a label key (also of finalizers, annotations, conditions): an optional subdomain, a slash, a name."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return ["must have at most one '/', between a DNS subdomain and a name"]
    faults = []
    if slash and not prefix:
        faults.append("must have a DNS subdomain before its '/'")
    elif slash:
        faults += [f"before its '/' {fault}" for fault in subdomain_faults(prefix)]
    if not name:
        faults.append("must have a name")
    elif size(name) > LABEL_BYTES:
        faults.append(f"must have a name of at most {LABEL_BYTES} bytes")
    if not _LABEL_KEY.fullmatch(name):
        faults.append(_KEY_CHARACTERS)
    return faults


def label_value_faults(text: str) -> list[str]:
    """Faults of a label value; the empty text has none."""
    return _length_faults(text, LABEL_BYTES) + ([] if not text or _LABEL_KEY.fullmatch(text) else [_KEY_CHARACTERS])


def beginning(text: str) -> str:
    """Return the text to judge in place of one that is the beginning of a name, as in generateName.

    It may end in a dash, since characters follow: the API server puts a letter for the last two bytes.
    """
    if size(text) > 1 and text.endswith("-"):
        return text.encode(errors="surrogatepass")[:-2].decode(errors="replace") + "a"
    return text


def _length_faults(text: str, limit: int) -> list[str]:
    return [f"must have at most {limit} bytes"] if size(text) > limit else []
