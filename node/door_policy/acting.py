"""The rules as they act on this node: their doors by configuration, node and server, each with its reason. Pure.

A rule keeps everything but its door. One that says ``both`` acts as ``plugin`` unless the server is known to keep
device taints, because without them a device that a plugin pod holds would still be given to claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from node.door_policy.choice import ANNOTATION, NodeDoors
from node.door_policy.taint_support import TaintSupport
from node.rules import PROFILE, Doors, Rule, matches_pattern
from node.values import Value, replace, value

_CONFIGURED = "the configuration"


@value
class ActingDoor(Value):
    """The door of a rule, by its resource name, and why it is that one.

    ``wanted``: what was asked for last, by ``origin`` (the configuration, the label, the annotation); ``acts``: what
    counts; ``reason``: one sentence for people where ``acts`` is not what the configuration says, else empty.
    """

    resource: str
    wanted: Doors
    acts: Doors
    origin: str
    reason: str = ""


@value
class Acting(Value):
    """``rules`` in their order, ``doors`` one for each of them; ``problems``: entries on the node that fit no rule."""

    rules: tuple[Rule, ...]
    doors: tuple[ActingDoor, ...]
    problems: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why rules act otherwise than configured, each once."""
        return tuple(dict.fromkeys(each.reason for each in self.doors if each.reason))

    @property
    def held_back(self) -> tuple[ActingDoor, ...]:
        """Rules that do not act as somebody wants, because the server does not let them."""
        return tuple(each for each in self.doors if each.acts is not each.wanted)


def effective(rules: Iterable[Rule], choice: NodeDoors, support: TaintSupport) -> Acting:
    """The rules as they act, by what people wrote on the node and by what the server keeps."""
    configured = tuple(rules)
    doors = tuple(_acting(rule, choice, support) for rule in configured)
    acting = tuple(
        rule if rule.door is each.acts else replace(rule, door=each.acts)
        for rule, each in zip(configured, doors, strict=True)
    )
    return Acting(acting, doors, tuple(_unmatched(configured, choice)))


def _acting(rule: Rule, choice: NodeDoors, support: TaintSupport) -> ActingDoor:
    wanted, origin = choice.of(rule.resource) or (rule.door, _CONFIGURED)
    if wanted is Doors.BOTH and not support.kept:
        said = f"{origin} says {wanted}"
        reason = f"{rule.resource} is offered through the {Doors.PLUGIN} door alone, though {said}: {support.text}"
        return ActingDoor(rule.resource, wanted, Doors.PLUGIN, origin, reason)
    reason = ""
    if wanted is not rule.door:
        reason = f"{rule.resource} has door {wanted} by {origin}; {_CONFIGURED} says {rule.door}"
    return ActingDoor(rule.resource, wanted, wanted, origin, reason)


def _unmatched(rules: Sequence[Rule], choice: NodeDoors) -> Iterable[str]:
    known = {rule.resource for rule in rules}
    for name, doors in choice.named:
        if name in known:
            continue
        whole = next((each for each in sorted(known) if _is_profile_of(name, each)), "")
        if whole:
            fix = f"a rule has one door for all profiles; write {whole}={doors}"
        else:
            fix = f"use one of {', '.join(sorted(known)) or 'none: there are no rules'}"
        yield f"annotation {ANNOTATION}: no rule offers {name}; {fix} (the entry is ignored)"


def _is_profile_of(name: str, resource: str) -> bool:
    return PROFILE in resource and matches_pattern(resource.replace(PROFILE, "*"), name)
