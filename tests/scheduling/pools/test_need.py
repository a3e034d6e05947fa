"""The short form of a need: what it stands for, and every error with the word, its place, and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.pools.need import EXAMPLE, NeedError, need_of
from scheduling.pools.reading import encode, read


def need(text: str) -> Any:
    document = encode(need_of(text))
    assert read(document) == need_of(text)
    (found,) = document["spec"]["claims"]
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu", {"deviceType": "gpu", "requests": {"count": "1"}}),
        ("2 gpu.example.com", {"deviceClass": "gpu.example.com", "requests": {"count": "2"}}),
        ("2..2 gpu", {"deviceType": "gpu", "requests": {"count": "2"}}),
        ("gpu, memory>=40Gi", {"deviceType": "gpu", "requests": {"count": "1", "memory": "40Gi"}}),
        ("2 gpu, memory >= 80Gi total", {"deviceType": "gpu", "requests": {"count": "2", "memory": "80Gi"}}),
        (
            EXAMPLE,
            {
                "deviceType": "gpu",
                "requests": {"count": "1", "memory": "128Gi"},
                "limits": {"count": "8"},
                "matchAttributes": ["pcieRoot"],
            },
        ),
        (
            "gpu, model=a100, cores != 4, note='two words', other.example.com/x=y",
            {
                "deviceType": "gpu",
                "requests": {"count": "1"},
                "constraints": 'device.model == "a100" && device.cores != 4 && device.note == "two words"'
                ' && device["other.example.com/x"] == "y"',
            },
        ),
        (
            "gpu, note='it is \U0001f600', mark=\"'\"",
            {
                "deviceType": "gpu",
                "requests": {"count": "1"},
                "constraints": 'device.note == "it is \U0001f600" && device.mark == "\'"',
            },
        ),
    ],
)
def test_what_it_stands_for(text: str, expected: Any) -> None:
    assert need(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the end (character 1): expected the name of a class or type of devices, in small letters"),
        ("2", "the end (character 2): expected the name of a class or type of devices, in small letters"),
        ("0 gpu", '"0" at character 1: expected a number of devices from 1 to 10000'),
        ("3..2 gpu", '"3..2" at character 1: expected a range that ends at 3 or above'),
        ("1..99999999 gpu", '"1..99999999" at character 1: expected a number of devices from 1 to 10000'),
        ("2 GPU", '"GPU" at character 3: expected the name of a class or type of devices, in small letters'),
        ("gpu memory>=1", "\"memory\" at character 5: expected ',' or the end"),
        ("gpu,", "the end (character 5): expected an amount with '>=', 'same' with an attribute, or an attribute"),
        ("gpu, memory", "the end (character 12): expected '>=', '=' or '!=' after memory"),
        ("gpu, memory<=1", '"<" at character 12: expected a word, a number, a text in quotes'),
        ("gpu, memory>=lots", '"lots" at character 14: expected a quantity above zero, such as 128Gi'),
        ("gpu, memory>=0", '"0" at character 14: expected a quantity above zero, such as 128Gi'),
        ("gpu, memory>=1 sum", "\"sum\" at character 16: expected 'total', ',' or the end"),
        ("gpu, memory>=1 = 2", "\"=\" at character 16: expected 'total', ',' or the end"),
        (
            "2 gpu, memory>=1",
            "the end (character 17): expected 'total', because several devices give the amount together",
        ),
        ("1..2 gpu, memory>=1 each", "\"each\" at character 21: expected 'total', ',' or the end"),
        ("gpu, memory>=1, memory>=2", '"memory" at character 17: expected each amount once; memory is asked'),
        ("gpu, count>=2", '"count" at character 6: expected an amount; how many devices stands before their name'),
        (
            "gpu, same",
            "the end (character 10): expected the name of an attribute or amount, such as pcieRoot or memory",
        ),
        ("gpu, 9x=1", '"9x" at character 6: expected the name of an attribute or amount'),
        ("gpu, model=", "the end (character 12): expected a value: a text or a whole number"),
        ("gpu; model=a", '";" at character 4: expected a word'),
    ],
)
def test_errors_name_word_place_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(NeedError) as caught:
        need_of(text)
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith(f"; for example: {EXAMPLE}")
