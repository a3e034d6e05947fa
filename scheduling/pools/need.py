"""The short form of a need: `1..8 gpu, memory>=128Gi total, same pcieRoot`.

    need       = part { "," part }
    first part = [ COUNT | LEAST ".." MOST ] NAME          how many devices, of which class or type (none: 1)
    part       = AMOUNT ">=" QUANTITY [ "total" ]          what they give together; "total" where there may be several
               | "same" ATTRIBUTE                          equal on all of them
               | ATTRIBUTE ("=" | "!=") VALUE              a text in quotes or without, or a whole number

A NAME with a dot is a class; one without is a type, which every class `NAME.…` is of. Nothing else is understood: an
error names the word, where it stands, and what is allowed there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, NoReturn

from scheduling.api.quantities import Quantity, QuantityError, from_int, parse
from scheduling.pools.claim_documents import DeviceClaim, DeviceClaimDetail, DeviceClaimInstance, DeviceClaimSpec
from scheduling.pools.documents import API_VERSION, COUNT, DocumentMetadata
from scheduling.pools.flat_cel import CEL_KEYWORDS
from scheduling.pools.rules import MOST_DEVICES

EXAMPLE: Final = "1..8 gpu, memory>=128Gi total, same pcieRoot"
_WORD: Final = re.compile(
    r"""(?P<blank>\s+) | (?P<range>[0-9]+\.\.[0-9]+(?![\w.])) | (?P<sign>>=|!=|=|,)
    | (?P<text>"[^"]*"|'[^']*') | (?P<word>[A-Za-z0-9_][A-Za-z0-9_.+/-]*)""",
    re.VERBOSE,
)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_ATTRIBUTE: Final = re.compile(r"([a-z0-9][-a-z0-9.]*/)?[A-Za-z_][A-Za-z0-9_]*")
_END: Final = "end"


class NeedError(ValueError):
    """A short form that cannot be read. `word` is what stands at `position` (characters from 1), "" for the end."""

    def __init__(self, word: str, position: int, allowed: str) -> None:
        found = f'"{word}" at character {position}' if word else f"the end (character {position})"
        super().__init__(f"{found}: expected {allowed}; for example: {EXAMPLE}")
        self.word = word
        self.position = position
        self.allowed = allowed


@dataclass(frozen=True, slots=True)
class _Word:
    """One word: its kind (`range`, `sign`, `text`, `word` or the end), text, and place from 0."""

    kind: str
    text: str
    place: int

    def refuse(self, allowed: str) -> NoReturn:
        raise NeedError(self.text, self.place + 1, allowed)


def need_of(text: str, name: str = "need") -> DeviceClaim:
    """The claim that a short form stands for. Raises NeedError."""
    reader = _Reader(text)
    detail = reader.detail()
    spec = DeviceClaimSpec(claims=(DeviceClaimInstance(all_of=(detail,)),))
    return DeviceClaim(API_VERSION, "DeviceClaim", DocumentMetadata(name=name), spec)


class _Reader:
    def __init__(self, text: str) -> None:
        self._words = _words(text)
        self._next = 0
        self._least = self._most = 1
        self._amounts: dict[str, Quantity] = {}
        self._same: list[str] = []
        self._constraints: list[str] = []

    def detail(self) -> DeviceClaimDetail:
        """Reads all of it."""
        self._count()
        word = self._take()
        if word.kind != "word" or not _NAME.fullmatch(word.text):
            word.refuse("the name of a class or type of devices, in small letters")
        while (sign := self._take()).kind != _END:
            if sign.text != ",":
                sign.refuse("',' or the end")
            self._part()
        is_class = "." in word.text
        limits = {COUNT: from_int(self._most)} if self._most > self._least else {}
        return DeviceClaimDetail(
            device_type=None if is_class else word.text,
            device_class=word.text if is_class else None,
            constraints=" && ".join(self._constraints) or None,
            requests={COUNT: from_int(self._least), **self._amounts},
            limits=limits,
            match_attributes=tuple(self._same),
        )

    def _take(self) -> _Word:
        word = self._words[self._next]
        self._next = min(self._next + 1, len(self._words) - 1)
        return word

    def _count(self) -> None:
        word = self._words[0]
        if word.kind == "range":
            self._take()
            self._least, self._most = (self._bounded(word, each) for each in word.text.split(".."))
            if self._most < self._least:
                word.refuse(f"a range that ends at {self._least} or above")
        elif word.kind == "word" and word.text.isdigit():
            self._take()
            self._least = self._most = self._bounded(word, word.text)

    def _bounded(self, word: _Word, digits: str) -> int:
        if len(digits) > 6 or not 1 <= int(digits) <= MOST_DEVICES:
            word.refuse(f"a number of devices from 1 to {MOST_DEVICES}")
        return int(digits)

    def _part(self) -> None:
        word = self._take()
        if word.kind != "word":
            word.refuse("an amount with '>=', 'same' with an attribute, or an attribute with '=' or '!='")
        if word.text == "same":
            self._same.append(self._attribute(self._take()))
            return
        name = self._attribute(word)
        sign = self._take()
        if sign.text == ">=":
            self._amount(word, name)
        elif sign.text in ("=", "!="):
            self._compare(name, sign.text)
        else:
            sign.refuse(f"'>=', '=' or '!=' after {word.text}")

    def _attribute(self, word: _Word) -> str:
        if word.kind != "word" or not _ATTRIBUTE.fullmatch(word.text):
            word.refuse("the name of an attribute or amount, such as pcieRoot or memory")
        return word.text

    def _amount(self, word: _Word, name: str) -> None:
        if name == COUNT:
            word.refuse("an amount; how many devices stands before their name")
        if name in self._amounts:
            word.refuse(f"each amount once; {name} is asked for already")
        given = self._take()
        try:
            amount = parse(given.text) if given.kind == "word" else None
        except QuantityError:
            amount = None
        if amount is None or amount.sign <= 0:
            given.refuse("a quantity above zero, such as 128Gi")
        how = self._words[self._next]
        if how.kind == "word":
            self._take()
            if how.text != "total":
                how.refuse("'total', ',' or the end")
        elif how.text not in (",", ""):
            how.refuse("'total', ',' or the end")
        elif self._most > 1:
            how.refuse("'total', because several devices give the amount together")
        self._amounts[name] = amount

    def _compare(self, name: str, sign: str) -> None:
        value = self._take()
        if value.kind not in ("word", "text"):
            value.refuse("a value: a text or a whole number")
        number = value.kind == "word" and re.fullmatch(r"[0-9]+", value.text) is not None
        inner = value.text[1:-1] if value.kind == "text" else value.text
        text = inner if number else json.dumps(inner, ensure_ascii=False)
        reads = f"device[{json.dumps(name)}]" if "/" in name or name in CEL_KEYWORDS else f"device.{name}"
        self._constraints.append(f"{reads} {'==' if sign == '=' else sign} {text}")


def _words(text: str) -> list[_Word]:
    found: list[_Word] = []
    place = 0
    while place < len(text):
        match = _WORD.match(text, place)
        if match is None:
            raise NeedError(text[place], place + 1, "a word, a number, a text in quotes, ',', '>=', '=' or '!='")
        if match.lastgroup != "blank":
            found.append(_Word(str(match.lastgroup), match.group(), place))
        place = match.end()
    return [*found, _Word(_END, "", len(text))]
