"""The steps of the tour as values, and as a few lines on a terminal about what happened.

What the lines leave out is in the step's data, for ``--verbose`` and for ``--once``. Invariants: the whole tour fits on
two screens, no line is wider than ``WIDTH``, and a step without a description of its own shows its first lines.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

WIDTH = 100
MOST = 8
"""Lines of one step at most."""
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TourStep:
    """A step of the tour: a key for programs, a title for people, and what was seen."""

    key: str
    title: str
    seen: object


def echo(*lines: object) -> None:
    """Write lines to the terminal, indented."""
    sys.stdout.write("".join(f"   {line}".rstrip() + "\n" for line in lines))


def indented(seen: object) -> str:
    """Lines that begin with three blanks and end with a line feed."""
    plain = _plain(seen)
    text: str = yaml.safe_dump(plain, sort_keys=False, width=110) if not _is_empty(plain) else "nothing"
    return "".join(f"   {line}\n" for line in text.splitlines())


def _is_empty(seen: object) -> bool:
    return isinstance(seen, (Mapping, list, tuple)) and not seen


def _plain(seen: object) -> object:
    """Without tuples, empty values and mappings that YAML does not know."""
    if isinstance(seen, Mapping):
        return {key: _plain(value) for key, value in seen.items() if not _is_empty(value)}
    if isinstance(seen, (list, tuple)):
        return [_plain(item) for item in seen]
    return seen


def brief(step: TourStep) -> list[str]:
    """The step's lines, its title first."""
    found = _LINES.get(step.key, _anything)(step.seen)
    lines = [line for each in found for line in _wrapped(each, "   ")]
    if len(lines) > MOST:
        lines = [*lines[: MOST - 1], f"   ... ({len(lines) - MOST + 1} more)"]
    return [*_wrapped(step.title, "== "), *lines]


def offered(device: Facts) -> str:
    """At which doors a device is, or why at none."""
    state, resource = device.get("published"), device.get("resource")
    by_claim = state not in (None, "withheld")
    if device.get("door") == "both" and resource and by_claim:
        return f"at both doors: as {resource} and for claims, {state}"
    if resource and device.get("door") in ("plugin", "both"):
        return f"offered as {resource}"
    return f"for claims, {state}" if by_claim else f"not offered: {device.get('offer_reason', '')}"


def _devices(devices: Iterable[Facts]) -> list[str]:
    """Devices of one sort in one line, with the first and the last of their names."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for device in devices:
        attributes = {each["name"]: each.get("string_value", "") for each in device.get("attributes", ())}
        what = attributes.get("productName") or str(device.get("kind", "device"))
        state = str(device.get("health", {}).get("state", ""))
        groups.setdefault((what, state, _where(device)), []).append(str(device["name"]))
    return [
        f"{len(names)} {what} ({names[0]}{f' ... {names[-1]}' if len(names) > 1 else ''}): {state}, {where}"
        for (what, state, where), names in groups.items()
    ] or ["none"]


def _where(device: Facts) -> str:
    """The doors; of a reason against both, the part that other devices share."""
    where = offered(device)
    return ":".join(where.split(":")[:2]) if where.startswith("not offered") else where


def _topology(lines: Sequence[str]) -> list[str]:
    kinds = Counter(re.findall(r"\b(GPU|NIC)\d+", lines[0]))
    near = ", ".join(f"{count} {kind}s" for kind, count in kinds.items())
    return [f"{near}; 'topology' at the prompt draws the matrix"]


def _changed(seen: Facts) -> list[str]:
    return [*seen["changes"], f"allocatable: {_numbers(seen['allocatable'])}"]


def _released(seen: Facts) -> list[str]:
    return [f"claims: {', '.join(seen['claims']) or 'none'}; CDI files: {', '.join(seen['specs']) or 'none'}"]


def _left(seen: Facts) -> list[str]:
    return [f"allocatable: {_numbers(seen['allocatable'])}", *_taints(seen["taints"])]


def _capacity(seen: Mapping[str, Facts]) -> list[str]:
    return [", ".join(f"{name}: {each['allocatable']} of {each['capacity']}" for name, each in seen.items())]


def _table(lines: Iterable[str]) -> list[str]:
    return [re.sub(" {3,}", "  ", line) for line in lines]


def _shares(lines: Iterable[str]) -> list[str]:
    """Door and holder of each share, out of the table of holds."""
    found = (re.search(r"(plugin|dra) +(\S.*\(share [^)]+\))", line) for line in lines)
    return [f"{share[1]}: {share[2]}" for share in found if share is not None]


def _moved(seen: Facts) -> list[str]:
    status = seen["status"]
    reported = f"; the claim's status: {status['interfaceName']} {', '.join(status['ips'])}" if status else ""
    return [
        _claim(seen["pod"]),
        *(f"{place}: {_interfaces(found)}" for place, found in seen["during"].items()),
        f"{seen['traffic']}{reported}",
        f"after the pod, node: {_interfaces(seen['after']['node'])}",
    ]


def _interfaces(found: Mapping[str, Iterable[str]]) -> str:
    return "; ".join(" ".join((name, *addresses)) for name, addresses in found.items()) or "no interface"


def _anything(seen: Any) -> list[str]:
    return [line.strip() for line in indented(seen).splitlines()]


def _resource(resource: Facts) -> str:
    return (
        f"{resource.get('name')}: {resource.get('healthy', 0)} of {resource.get('devices', 0)} healthy, "
        f"{resource.get('registration')} by {resource.get('path')}"
    )


def _pod(pod: Facts) -> str:
    if not pod["admitted"]:
        return f"{pod['pod']}: {pod['reason']}: {pod['message']}"
    given = [f"{name} {', '.join(ids)}" for name, ids in pod["devices"].items()]
    near = f" ({pod['proximity']})" if "proximity" in pod else ""
    return f"{pod['pod']}{near}: {len(pod['container'].get('devices', ()))} device files; {'; '.join(given)}"


def _slice(found: Facts) -> str:
    kinds = Counter(str(device["name"]).partition("-")[0] for device in found["devices"])
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"pool {found['pool']}, generation {found['generation']}: {counts}"


def _claim(pod: Facts) -> str:
    devices = [str(name).rpartition("/")[2] for names in pod.get("claims", {}).values() for name in names]
    return f"{pod['pod']}: {pod['phase']}: {', '.join(devices) or pod.get('message', '')}"


def _taints(taints: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"{device}: taint {', '.join(found)}" for device, found in taints.items()] or ["no device has a taint"]


def _health(status: Mapping[str, Iterable[Facts]]) -> list[str]:
    resources = (resource for found in status.values() for resource in found)
    return [f"pod's status: {each['health']} {each.get('message', '')}".rstrip() for each in resources]


def _numbers(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in numbers.items())


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=" " * 5, break_on_hyphens=False) or [""]


def _each(line_of: Callable[[Facts], str]) -> Callable[[Iterable[Facts]], list[str]]:
    return lambda seen: [line_of(one) for one in seen]


_LINES: Mapping[str, Callable[[Any], list[str]]] = {
    "devices": _devices,
    "topology": _topology,
    "resources": _each(_resource),
    "capacity": _capacity,
    "allocations": _each(_pod),
    "pairs": _each(_pod),
    "refused": lambda seen: [_pod(seen)],
    "failure": _changed,
    "recovery": _changed,
    "slices": _each(_slice),
    "claim": lambda seen: [_claim(seen)],
    "claim_pair": lambda seen: [_claim(seen)],
    "islands": _each(_claim),
    "claim_failure": lambda seen: [*_taints(seen["taints"]), *_health(seen["podStatus"])],
    "claim_recovery": lambda seen: [*_taints(seen["taints"]), *_health(seen["podStatus"])],
    "released": _released,
    "withdrawn": _left,
    "offered_again": _left,
    "holds": _table,
    "shares": _shares,
    "partition": lambda seen: [
        _claim(seen["part"]),
        *(f"made: {each}" for each in seen["made"]),
        _claim(seen["whole"]),
    ],
    "health": _table,
    "moved": _moved,
}
