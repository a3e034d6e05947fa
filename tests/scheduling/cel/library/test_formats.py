from __future__ import annotations

import pytest

from scheduling.cel.library.formats import FORMATS
from scheduling.cel.values import NONE, CelFault, Optional
from tests.making.cel import CALLS


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("dns1123Label", ["a", "1a", "a-b", "a" * 63], ["", "A", "-a", "a-", "a_b", "a.b", "a\n"]),
        ("dns1123Subdomain", ["a", "a.b-c.1"], ["", "a..b", ".a", "a.-b", "a/b"]),
        ("dns1035Label", ["a", "a1"], ["", "1a", "a-", "a.b"]),
        ("dns1123LabelPrefix", ["a-", "a--", "--", "A-"], ["-", "AB-", "-a-b"]),
        ("dns1123SubdomainPrefix", ["a.b-"], ["a..b-"]),
        ("dns1035LabelPrefix", ["ab-"], ["1b-", "a-\u00e9-"]),
        ("qualifiedName", ["a", "My_name.x", "example.com/A"], ["", "_a", "/a", "A.com/a", "a/", "a/b/c"]),
        ("labelValue", ["", "A_b.c-1"], ["-a", "a_", "a/b"]),
        ("uri", ["http://h/", "/p", "x:y"], ["", "p", "http://h:x"]),
        ("uuid", ["550e8400-e29b-41d4-a716-446655440000", "550E8400E29B41D4A716446655440000"], ["", "550e8400"]),
        ("byte", ["YQ==", "YWI=", "YWJj"], ["", "YQ=", "YQ", "Y-=="]),
        ("date", ["2024-02-29", "0000-02-29", "2000-02-29"], ["2023-02-29", "1900-02-29", "24-01-01", "2024-13-01"]),
        (
            "datetime",
            ["2006-01-02T15:04:05Z", "2006-01-02t15:04:05.123+01:00", "2006-01-02T15:04:05Ztrailing"],
            [
                "2006-01-02",
                "2006-01-02T24:00:00Z",
                "2006-01-02T15:60:00Z",
                "2006-01-02T15:04:05",
                "2006-02-30T00:00:00Z",
            ],
        ),
    ],
)
def test_a_format_accepts_and_refuses(name: str, good: list[str], bad: list[str]) -> None:
    check = FORMATS[name].check
    assert [text for text in good if check(text)] == []
    assert [text for text in bad if not check(text)] == []


def test_a_long_label_earns_two_complaints() -> None:
    assert FORMATS["dns1123Label"].check("A" * 64) == [
        "must have at most 63 bytes",
        "must consist of lower case letters, digits or '-', with a letter or digit at both ends",
    ]


def test_both_parts_of_a_qualified_name_are_judged() -> None:
    assert FORMATS["qualifiedName"].check("/") == [
        "must have a DNS subdomain before its '/'",
        "must have a name",
        "must consist of letters, digits, '-', '_' or '.', with a letter or digit at both ends",
    ]


def test_functions_give_and_apply_formats() -> None:
    named = CALLS["format.date"]()
    assert named is FORMATS["date"]
    assert CALLS["format-validate"](named, "2006-01-02") is NONE
    found = CALLS["format-validate"](named, "x")
    assert isinstance(found, Optional)
    assert found.get() == ["must be a date like 2006-01-02"]
    assert CALLS["format-named"]("nosuch") is NONE
    assert CALLS["format-named"]("uuid").get() is FORMATS["uuid"]


def test_formats_are_equal_by_name() -> None:
    assert FORMATS["date"].cel_equal(FORMATS["date"])
    assert not FORMATS["date"].cel_equal(FORMATS["datetime"])
    assert len(set(FORMATS.values())) == len(FORMATS)
    with pytest.raises(CelFault, match="no such overload"):
        FORMATS["date"].cel_equal("date")
