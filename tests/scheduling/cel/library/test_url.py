from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.cel.library.url import UrlError, is_url, parse
from scheduling.cel.values import CelFault
from tests.making.cel import CALLS


def test_the_parts_of_a_url() -> None:
    url = parse("HTTPS://user:pa%40ss@Host:8443/a%20b?x=1&y=2&x=3#frag")
    assert (url.scheme, url.host, url.hostname, url.port) == ("https", "Host:8443", "Host", "8443")
    assert (url.user, url.path, url.escaped_path) == (("user", "pa@ss"), "/a b", "/a%20b")
    assert url.parameters() == {"x": ("1", "3"), "y": ("2",)}
    assert str(url) == "https://user:pa%40ss@Host:8443/a%20b?x=1&y=2&x=3#frag"


@pytest.mark.parametrize(
    ("text", "host", "hostname", "port"),
    [
        ("http://[::1]:80/", "[::1]:80", "::1", "80"),
        ("http://[fe80::1%25eth0]/", "[fe80::1%eth0]", "fe80::1%eth0", ""),
        ("http://h:/", "h:", "h", ""),
        ("foo://a:b:80/", "a:b:80", "a:b", "80"),
        ("http://%e4/", "\udce4", "\udce4", ""),
        ("/only/path", "", "", ""),
        ("mailto:a@b", "", "", ""),
    ],
)
def test_hosts(text: str, host: str, hostname: str, port: str) -> None:
    url = parse(text)
    assert (url.host, url.hostname, url.port) == (host, hostname, port)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("http://h/a b", "/a%20b"),
        ("http://h/a%2fb", "/a%2fb"),
        ("http://h/[x]!*'()", "/[x]!*'()"),
        ("http://h/\u00e9", "/%C3%A9"),
        ("http://h/%c3%a9", "/%c3%a9"),
        ('http://h/"%20', "/%22%20"),
        ("*", "*"),
        ("http://h", ""),
        ("x:opaque/path", ""),
    ],
)
def test_paths_keep_valid_escapes(text: str, path: str) -> None:
    assert parse(text).escaped_path == path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("relative", "it must begin with a scheme or a slash"),
        ("1http://h", "it must begin with a scheme or a slash"),
        (":x", "its scheme is missing"),
        ("http://h/\n", "it must not have control characters"),
        ("http://h/%zz", "a percent sign must be followed by two hexadecimal digits"),
        ("http://h/%4", "a percent sign must be followed by two hexadecimal digits"),
        ("http://h:x/", '":x" after its host must be a colon and digits'),
        ("http://a:b:80/", '":b:80" after its host must be a colon and digits'),
        ("http://[::1]x/", '"x" after its host must be a colon and digits'),
        ("http://[::1/", "a bracket in its host must be opened once, first, and closed"),
        ("http://a[::1]/", "a bracket in its host must stand first"),
        ("http://[1.2.3.4]/", "a host in brackets must be an IPv6 address"),
        ("http://[x]/", "a host in brackets must be an IPv6 address"),
        ("http://a b/", "its host has characters that are not allowed"),
        ("http://%41/", 'its host must not have the escape "%41"'),
        ("http://u<@h/", "its user information has characters that are not allowed"),
    ],
)
def test_what_is_no_url_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(UrlError) as caught:
        parse(text)
    assert str(caught.value) == f'"{text}" is not a URL: {reason}'
    assert not is_url(text)


def test_malformed_parameters_are_left_out() -> None:
    assert parse("/?a=1&b=%zz&c;d&&e&=f&g=+%2b").parameters() == {"a": ("1",), "e": ("",), "": ("f",), "g": (" +",)}
    assert parse("/?" + "a&" * 9_999 + "a").parameters() == {"a": ("",) * 10_000}
    assert parse("/?" + "a&" * 10_000 + "a").parameters() == {}


def test_urls_are_equal_when_they_are_written_the_same() -> None:
    assert parse("HTTP://h/").cel_equal(parse("http://h/"))
    assert not parse("http://h").cel_equal(parse("http://h/"))
    assert not parse("http:/h").cel_equal(parse("http:///h"))
    assert [str(parse(text)) for text in ("http:/h", "http:///h", "//u@h/p")] == ["http:/h", "http:///h", "//u@h/p"]
    assert not parse("http://h/?").cel_equal(parse("http://h/"))
    with pytest.raises(CelFault, match="no such overload"):
        parse("/").cel_equal("/")


def test_a_text_that_is_not_utf8_is_escaped_all_the_same() -> None:
    assert parse("http://h/\ud800").escaped_path == "/%ED%A0%80"


def test_functions_read_urls() -> None:
    url = CALLS["string_to_url"]("http://h:1/p?q=a")
    assert [
        CALLS[f"url_get_{part}"](url) for part in ("scheme", "host", "hostname", "port", "escaped_path", "query")
    ] == [
        *("http", "h:1", "h", "1", "/p"),
        {"q": ["a"]},
    ]
    assert CALLS["is_url_string"]("x") is False
    with pytest.raises(CelFault, match='"x" is not a URL'):
        CALLS["string_to_url"]("x")


@given(st.text(max_size=30))
def test_any_text_is_a_url_or_an_error(text: str) -> None:
    for start in ("", "http://", "http://h/", "/?"):
        try:
            url = parse(start + text)
        except UrlError:
            continue
        assert is_url(start + text)
        assert url.escaped_path.isascii()
        url.parameters()
