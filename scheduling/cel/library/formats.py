"""Kubernetes' library of named formats: what a text must look like to be a label, a name, a date and so on.

One function gives each format, `format.named` gives any, and `validate` checks a text. Source of the rules: the API
server's library and the validation it calls. A text earns as many complaints as there; their wording is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from scheduling.api.labels import (
    LABEL_BYTES,
    beginning,
    label_faults,
    label_key_faults,
    label_value_faults,
    subdomain_faults,
)
from scheduling.cel.library.function import Library, Overload, function, method
from scheduling.cel.library.prices import REGEX, TEXT, CallEstimate, CallOperand, Price
from scheduling.cel.library.times import days_in
from scheduling.cel.library.url import is_url
from scheduling.cel.types import NAMED_FORMAT, STRING, Type, list_of, optional_of
from scheduling.cel.values import NONE, Opaque, Optional, Value, size_of, spend_on_text, utf8

Check = Callable[[str], list[str]]
"""Gives the complaints about a text, none if it has the format."""

_DNS_1035_LABEL = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_UUID = re.compile("[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_BASE64 = re.compile("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")


@dataclass(frozen=True, slots=True, eq=False)
class NamedFormat(Opaque):
    """One format. Formats are equal by `name`; the run-time cost of a check counts with `regex_size`."""

    cel_type: ClassVar[Type] = NAMED_FORMAT

    name: str
    check: Check
    regex_size: int

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, NamedFormat) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)


def _dns_1035_label(text: str) -> list[str]:
    complaints = [] if len(utf8(text)) <= LABEL_BYTES else [f"must have at most {LABEL_BYTES} bytes"]
    if not _DNS_1035_LABEL.fullmatch(text):
        complaints.append("must be lower case letters, digits and inner hyphens, beginning with a letter")
    return complaints


def _text(faults: Check) -> Check:
    """The same check, with the length of the text counted as work."""

    def checked(text: str) -> list[str]:
        spend_on_text(len(text))
        return faults(text)

    return checked


def _prefix_of(check: Check) -> Check:
    """The check of a prefix of a name."""
    return lambda text: check(beginning(text))


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    return 1 <= month <= 12 and 1 <= day <= days_in(year, month)


def _is_datetime(text: str) -> bool:
    """Whether the text is a time of RFC 3339; what follows a second "t" is ignored."""
    parts = text.lower().split("t")
    if len(parts) < 2 or not _is_date(parts[0]):
        return False
    match = _TIME.fullmatch(parts[1])
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _rule(holds: Callable[[str], object], complaint: str) -> Check:
    return lambda text: [] if holds(text) else [complaint]


FORMATS: Mapping[str, NamedFormat] = {
    "dns1123Label": NamedFormat("DNS1123Label", _text(label_faults), 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _text(subdomain_faults), 60),
    "dns1035Label": NamedFormat("DNS1035Label", _dns_1035_label, 30),
    "qualifiedName": NamedFormat("QualifiedName", _text(label_key_faults), 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix_of(_text(label_faults)), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix_of(_text(subdomain_faults)), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix_of(_dns_1035_label), 30),
    "labelValue": NamedFormat("LabelValue", _text(label_value_faults), 40),
    "uri": NamedFormat("URI", _rule(is_url, "must be a URL, or a path that begins with a slash"), 1103),
    "uuid": NamedFormat("uuid", _rule(_UUID.fullmatch, "must be a UUID"), 70),
    "byte": NamedFormat("byte", _rule(_BASE64.fullmatch, "must be base64"), 84),
    "date": NamedFormat("date", _rule(_is_date, "must be a date like 2006-01-02"), 71),
    "datetime": NamedFormat("datetime", _rule(_is_datetime, "must be a time like 2006-01-02T15:04:05Z"), 71),
}
"""The formats by the names of their functions, without `format.`."""


def _named(name: str) -> Value:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(named: NamedFormat, text: str) -> Value:
    """The complaints as an optional list, which is empty for a text of the format."""
    complaints: list[Value] = [*named.check(text)]
    return Optional(complaints) if complaints else NONE


_LONGEST_REGEX = 128  # of a named format


def _validate_cost(arguments: Sequence[Value], _result: Value) -> int:
    named = arguments[0]
    if not isinstance(named, NamedFormat):
        return 1
    return ceil((1.0 + size_of(arguments[1])) * TEXT) * ceil(named.regex_size * REGEX)


def _validate_estimate(operands: Sequence[CallOperand]) -> CallEstimate:
    return CallEstimate(operands[1].range().times(TEXT).times(_LONGEST_REGEX * REGEX))


def _constant(name: str, named: NamedFormat) -> Overload:
    return function(f"format.{name}", f"format.{name}", result=NAMED_FORMAT, call=lambda: named)


LIBRARY: Library = (
    method(
        "validate",
        "format-validate",
        NAMED_FORMAT,
        STRING,
        result=optional_of(list_of(STRING)),
        call=_validate,
        price=Price(_validate_cost, _validate_estimate, by_name=True),
    ),
    function("format.named", "format-named", STRING, result=optional_of(NAMED_FORMAT), call=_named),
    *(_constant(name, named) for name, named in FORMATS.items()),
)
