"""Reads YAML that others wrote, in bounded memory and time whatever the text is.

A loader recurses in C, so that enough brackets end the process, and lets ten lines of aliases expand to more values
than memory holds. So a text is walked through as events first, which neither nest nor expand: depth, values and what
aliases add are counted there, and only a text within all ``DocumentLimits`` is loaded. A caller that builds values from
the events itself (``events``) counts for itself.

Numbers are bounded as well: one of a thousand digits cannot be printed, and one to the base of 60 (``1:30:00``), which
only YAML 1.1 knows, takes the square of its length and overflows as a float. That one is read as the text that it is.

The library is imported at the first text: a node without YAML never pays for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, cast

from node.documents import ORDINARY, DocumentLimits, DocumentRefused, glimpse, too_deep

if TYPE_CHECKING:
    import yaml

DEEPEST = 4000
"""Levels beyond which no text is walked through, by readers either that leave out what is too deep for them."""
LONGEST_NUMBER = 100
"""Characters of a number."""
_INTEGER = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"


def parse_yaml(text: bytes | str, limits: DocumentLimits = ORDINARY) -> Any:
    """The value of a YAML text of one document, None if there is none; raises ``DocumentRefused``."""
    found = parse_yaml_all(text, limits)
    if len(found) > 1:
        raise DocumentRefused("more than one document")
    return found[0] if found else None


def parse_yaml_all(text: bytes | str, limits: DocumentLimits = ORDINARY) -> list[Any]:
    """The values of a YAML text's documents; raises ``DocumentRefused``."""
    import yaml

    try:
        check(events(text), limits)
        return list(yaml.load_all(text, Loader=_bounded_loader()))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        refuse(error)
    except (ValueError, AttributeError, LookupError, TypeError) as error:
        if isinstance(error, DocumentRefused):
            raise
        # Of values that are not what their own tag says, such as "!!bool x".
        raise DocumentRefused(f"not valid YAML: {glimpse(str(error))}") from error


def compose_yaml(text: str, limits: DocumentLimits = ORDINARY) -> yaml.Node | None:
    """The nodes of a YAML text, None if there are none; raises ``DocumentRefused``."""
    import yaml

    try:
        check(events(text), limits)
        node: yaml.Node | None = yaml.compose(text, Loader=loader())
    except yaml.YAMLError as error:
        refuse(error)
    return node


def events(text: bytes | str) -> Iterator[yaml.Event]:
    """The parser's events, libyaml's where PyYAML has it; raises ``yaml.YAMLError`` on the way.

    Without limits but one: the parser's time grows with the square of the depth.
    """
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=loader()):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                problem = f"nested deeper than {DEEPEST} levels"
                mark = cast("yaml.Mark | None", event.start_mark)  # libyaml's has the same attributes.
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        yield event


def loader() -> type[yaml.SafeLoader]:
    """The safe loader, libyaml's where PyYAML has it."""
    import yaml

    found: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return found


@cache
def _bounded_loader() -> type[yaml.SafeLoader]:
    """The loader that makes values, with bounded numbers."""
    found: type[yaml.SafeLoader] = type("BoundedLoader", (loader(),), {})
    found.add_constructor(_INTEGER, _number)
    found.add_constructor(_FLOAT, _number)
    return found


def _number(reader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float | str:
    text = reader.construct_scalar(node)
    if ":" in text:
        return text
    if len(text) > LONGEST_NUMBER:
        raise DocumentRefused(f"a number of more than {LONGEST_NUMBER} characters", node.start_mark.line + 1)
    return reader.construct_yaml_int(node) if node.tag == _INTEGER else reader.construct_yaml_float(node)


def check(stream: Iterable[yaml.Event], limits: DocumentLimits) -> None:
    """Walk through a text's events; raises ``DocumentRefused`` at the first that is beyond a limit."""
    import yaml

    open_: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}
    values = aliased = 0
    for event in stream:
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.NodeEvent):
            values += 1
        elif isinstance(event, yaml.DocumentStartEvent):
            sizes.clear()
        if isinstance(event, yaml.CollectionStartEvent):
            if len(open_) == limits.depth:
                raise too_deep(limits, line)
            open_.append((event.anchor, values + aliased - 1))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            if anchor:
                sizes[anchor] = values + aliased - before
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                shown = glimpse(f"*{event.anchor}", 60)
                inside = any(anchor == event.anchor for anchor, _ in open_)
                raise DocumentRefused(
                    f"the alias {shown} {'stands inside of what it names' if inside else 'names nothing'}", line
                )
            aliased += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent) and event.anchor:
            sizes[event.anchor] = 1
        if values > limits.values:
            raise DocumentRefused(f"more than {limits.values} values", line)
        if aliased > limits.aliased:
            raise DocumentRefused(f"aliases stand for more than {limits.aliased} values", line)


def refuse(error: Exception) -> NoReturn:
    """Raise ``DocumentRefused`` for an error of the YAML library."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or " ".join(str(error).split())
    line = mark.line + 1 if mark is not None else 0
    raise DocumentRefused(f"not valid YAML: {glimpse(str(problem))}", line) from error
