"""Objects of the API as plain JSON values: reading them without trust, and the paths at which the API serves them.

Typed models cost 16 to 34 MB more per node, and they hide what a newer server sends. So bodies are dicts; a reader asks
for a path of keys and gets an empty value if the server sent something else. Nothing here loads a transport.
"""

from __future__ import annotations

from urllib.parse import quote

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
JsonObject = dict[str, Json]
_THOUSANDS = {"k": 10**3, "M": 10**6}


def object_at(body: Json, *keys: str) -> JsonObject:
    """The object at a path of keys, empty if there is none."""
    for key in keys:
        if not isinstance(body, dict):
            return {}
        body = body.get(key)
    return body if isinstance(body, dict) else {}


def text_at(body: Json, *keys: str) -> str:
    """The text at a path of keys, empty if there is none."""
    found = object_at(body, *keys[:-1]).get(keys[-1])
    return found if isinstance(found, str) else ""


def is_deeper(body: Json, levels: int) -> bool:
    """Whether lists or mappings nest deeper than that many levels."""
    level: list[JsonObject | list[Json]] = [body] if isinstance(body, (dict, list)) else []
    for _ in range(levels):
        if not level:
            return False
        # Comparing types is twice as fast as isinstance, and bodies have millions of values.
        level = [
            value
            for one in level
            for value in (one.values() if type(one) is dict else one)
            if type(value) is dict or type(value) is list
        ]
    return bool(level)


def one_line(text: str, most: int) -> str:
    """A foreign text as one line of printable characters, cut to ``most`` of them.

    This also removes lone surrogates, which logs and messages cannot hold.
    """
    begin = text[: 4 * most]
    line = " ".join("".join(char if char.isprintable() else " " for char in begin).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def count_of(quantity: str) -> int | None:
    """A quantity of devices as a number: ``8``, or ``1k`` for 1000. None unless it is a whole number."""
    number, unit = (quantity[:-1], quantity[-1]) if quantity[-1:] in _THOUSANDS else (quantity, "")
    return int(number) * _THOUSANDS.get(unit, 1) if number.isascii() and number.isdigit() else None


def path_of(*parts: str) -> str:
    """A path of the API with its parts escaped: ``path_of("api", "v1", "nodes", name)``."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def whole(body: JsonObject) -> JsonObject:
    """The object itself, for readers that keep all of it."""
    return body
