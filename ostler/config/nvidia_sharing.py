"""The ``sharing`` section of NVIDIA's device plugin: read as the plugin reads it, and applied to the rules of the
file's resources.

NVIDIA's plugin 0.20 parses ``rename`` and ``devices`` of a shared resource and then overrules them with a warning. Here
they have effect. What depends on chance in the plugin (``devices: 2`` with MIG) or contradicts itself (MPS for MIG
devices, time slicing and MPS together) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from node.inventory.model import DeviceKind
from node.inventory.nvidia.vendor import GPU_RESOURCE, MIG_RESOURCE
from node.rules import PROFILE, Rule
from node.sharing import MOST_CLIENTS, SharePreference, Sharing, SharingStrategy
from node.values import Value, replace, value
from ostler.config.document import Mapping, Meaning, Node, RefusedNode, ScalarNode, clipped, shown
from ostler.config.errors import ConfigError, Note, NoteKind, Origin
from ostler.config.foreign import GoSection
from ostler.config.resources import PlacedRule, check_name
from ostler.config.scalars import BadValue, Boolean, Integer, JsonObject, Text, Unusable
from ostler.config.section import AnyField, ConfigField, ConfigList, Section, Values, section
from ostler.config.settings import MigStrategy
from ostler.config.sharing import MOST_REPLICAS

DOMAIN = "nvidia.com/"
_SHARED_SUFFIX = ".shared"
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_REFERENCE = re.compile(rf"[0-9]+(:[0-9]+)?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/[0-9]+/[0-9]+")
_IS_UUID = re.compile(r"(GPU|MIG)-.*")
_MIG_NAME = re.compile(rf"{DOMAIN}mig-(([0-9]c\.)?[0-9]g\.[0-9]+gb)(\.([a-z.]+))?")


class _CaseSection(GoSection):
    """A section that the plugin reads by its own code, in which the case of keys matters; a null counts as absent."""

    def known(self, key: str) -> AnyField | None:
        """See ``Section``."""
        return Section.known(self, key)


class SharedDevices:
    """Which devices of a resource are shared: ``all``, a number of them, or a list of indices and UUIDs.

    What it reads is None for all, a number, or a tuple of texts.
    """

    example = "all"
    accepts = "all, a number, or a list of indices and UUIDs"

    def read(self, node: Node, at: Origin, problems: list[ConfigError]) -> tuple[str, ...] | int | None:
        """See ``ValueType``."""
        del at, problems  # one problem is enough for a list that has to be written anew
        if isinstance(node, RefusedNode):
            raise Unusable
        fix = f"write {self.accepts}, such as [0, 1]"
        if isinstance(node, ScalarNode):
            if node.text == "all" or node.meaning is Meaning.NULL:
                return None
            if node.meaning is Meaning.NUMBER and re.fullmatch(r"[1-9][0-9]{0,5}", node.text):
                return int(node.text)
            raise BadValue(f"is {shown(node.text)}", fix)
        if isinstance(node, Mapping):
            raise BadValue("is a mapping", fix)
        references = [item.text if isinstance(item, ScalarNode) else "" for item in node.items]
        wrong = next((text for text in references if not _REFERENCE.fullmatch(text)), None)
        if wrong is not None:
            raise BadValue(
                f"has {shown(wrong)}, no index and no UUID", "write indices such as 0 or 0:1, or whole UUIDs"
            )
        if not references:
            raise BadValue("is an empty list", fix)
        return tuple(dict.fromkeys(references))

    def from_text(self, text: str) -> tuple[str, ...] | int | None:
        """See ``ValueType``."""
        raise BadValue(f"is {shown(text)}", f"write {self.accepts} in a file")

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {}


NAME = ConfigField("name", Text(r"(?s:.+)", "a resource name", "nvidia.com/gpu"), "", "Resource name.", required=True)
_RENAME = ConfigField("rename", NAME.type, "", "Name of the shared resource.")
_DEVICES: ConfigField[tuple[str, ...] | int | None] = ConfigField(
    "devices", SharedDevices(), None, "Which devices are shared."
)
_REPLICAS = ConfigField("replicas", Integer(2, MOST_REPLICAS, 10), 2, "Replicas of each device.", required=True)
_RENAME_ALL = ConfigField("renameByDefault", Boolean(), False, "Whether names get .shared.")
_FAIL: ConfigField[bool | None] = ConfigField("failRequestsGreaterThanOne", Boolean(), None, "One share only.")
_RESOURCES: ConfigField[tuple[Values, ...]] = ConfigField(
    "resources", ConfigList(_CaseSection(NAME, _RENAME, _DEVICES, _REPLICAS), unique=False), (), "Shared resources."
)
_SHARED = _CaseSection(_RENAME_ALL, _FAIL, _RESOURCES)
TIME_SLICING = section("timeSlicing", _SHARED, "Time slicing.")
MPS = section("mps", _SHARED, "MPS.")

CORRESPONDENCE: dict[int, str] = {
    id(_RENAME_ALL): "`resources[].name` with `.shared`",
    id(_FAIL): "`resources[].sharing.failRequestsGreaterThanOne`; with mps true unless given",
    id(_RESOURCES): "`resources[].sharing`",
    id(NAME): "the resource that is shared; a MIG profile gets a resource of its own",
    id(_RENAME): "`resources[].name` (NVIDIA's plugin overrules it)",
    id(
        _DEVICES
    ): "`resources[].sharing.perDevice`, or `resources[].devices.uuid` with rename (NVIDIA's plugin overrules it)",
    id(_REPLICAS): "`resources[].sharing.replicas`, 1024 at most",
}
"""The meaning of each key here, by the field's id: for the reference page."""


@value
class Share(Value):
    """A shared resource of the file: ``name`` without sharing, ``offered`` with it.

    ``devices``: indices or UUIDs; empty for all of the resource. ``counted``: where they are given as a number, which
    selects the first ones. ``place``: of ``name``, ``offered_at``: of ``offered``.
    """

    name: str
    offered: str
    devices: tuple[str, ...]
    sharing: Sharing
    origin: Origin
    place: Origin
    offered_at: Origin
    counted: Origin | None = None


def read_shares(
    sharing: Values, preference: SharePreference, problems: list[ConfigError], notes: list[Note]
) -> tuple[Share, ...]:
    """The shared resources that the file asks for."""
    asked = [field for field in (TIME_SLICING, MPS) if field in sharing and sharing[field][_RESOURCES]]
    if len(asked) > 1:
        problem = "shares resources, and so does sharing.timeSlicing, but a GPU is shared in one way"
        problems.append(sharing.place(MPS).error(problem, "remove one of the two"))
        return ()
    for field in (TIME_SLICING, MPS):
        if field in sharing and field not in asked:
            notes.extend(_unused(sharing[field]))
    return tuple(share for field in asked for share in _read(sharing[field], field, preference, problems, notes))


def _unused(given: Values) -> Iterator[Note]:
    for field in (_RENAME_ALL, _FAIL, _RESOURCES):
        if field in given:
            yield Note(NoteKind.IGNORED, given.place(field), "is ignored: nothing is shared")


def _read(
    given: Values,
    field: ConfigField[Values],
    preference: SharePreference,
    problems: list[ConfigError],
    notes: list[Note],
) -> Iterator[Share]:
    strategy = SharingStrategy.MPS if field is MPS else SharingStrategy.TIME_SLICING
    fail = given[_FAIL]
    only_one = strategy is SharingStrategy.MPS if fail is None else fail
    if _FAIL in given:
        text = f"taken as sharing.failRequestsGreaterThanOne {str(only_one).lower()}"
        notes.append(Note(NoteKind.TAKEN, given.place(_FAIL), text))
    if _RENAME_ALL in given:
        suffix = f"names with {_SHARED_SUFFIX}" if given[_RENAME_ALL] else "names as they are"
        notes.append(Note(NoteKind.TAKEN, given.place(_RENAME_ALL), f"taken as {suffix}"))
    for item in given[_RESOURCES]:
        if item.broken:
            continue
        if strategy is SharingStrategy.MPS and item[_REPLICAS] > MOST_CLIENTS:
            problem = f"is {item[_REPLICAS]}, but MPS serves at most {MOST_CLIENTS} clients on a GPU"
            problems.append(item.place(_REPLICAS).error(problem, f"write at most {MOST_CLIENTS}, or use timeSlicing"))
            continue
        name = qualified(item[NAME])
        offered = qualified(item[_RENAME]) if item[_RENAME] else name
        if given[_RENAME_ALL] and not item[_RENAME]:
            offered = f"{name}{_SHARED_SUFFIX}"
        chosen = item[_DEVICES]
        counted = item.place(_DEVICES) if isinstance(chosen, int) else None
        devices = tuple(str(index) for index in range(chosen)) if isinstance(chosen, int) else chosen or ()
        if offered != name and not all(_IS_UUID.fullmatch(each) for each in devices):
            problem = f"names devices by index, but they are offered as {clipped(offered)}, and an index may change"
            problems.append(item.place(_DEVICES).error(problem, "list them by UUID"))
        else:
            sharing = Sharing(strategy, item[_REPLICAS], fail_multiple=only_one, preference=preference)
            offered_at = item.place(_RENAME if item[_RENAME] else NAME)
            yield Share(name, offered, devices, sharing, item.origin, item.place(NAME), offered_at, counted)


def qualified(name: str) -> str:
    """The name with NVIDIA's domain, which the plugin adds where it is left out."""
    return name if name.startswith(DOMAIN) else f"{DOMAIN}{name}"


def shared_rules(
    shares: Sequence[Share],
    placed: Sequence[PlacedRule],
    strategy: MigStrategy,
    problems: list[ConfigError],
    notes: list[Note],
) -> tuple[PlacedRule, ...]:
    """The rules, with sharing for the shared resources."""
    rules = list(placed)
    for name in dict.fromkeys(share.name for share in shares):
        group = [share for share in shares if share.name == name]
        targets = _targets(name, rules)
        if not targets:
            _report_missing(group[0], placed, strategy, problems, notes)
            continue
        if name != GPU_RESOURCE or strategy is not MigStrategy.NONE:
            for share in group:
                if share.counted is not None:
                    problem = "is a number, but which of the devices are the first ones changes with their MIG devices"
                    problems.append(share.counted.error(problem, "list them by UUID"))
        if _is_shareable(group, targets, rules, problems, notes) and _fit_together(group, problems):
            for target in targets:
                _share(target, group, rules, problems)
            notes.extend(_taken(share) for share in group)
    return tuple(rules)


def _targets(name: str, rules: list[PlacedRule]) -> list[PlacedRule]:
    """The rules of the resource; a MIG profile gets one of its own before the rule for all profiles."""
    found = [one for one in rules if one.rule.resource == name]
    template = next((one for one in rules if one.rule.resource == MIG_RESOURCE), None)
    match = _MIG_NAME.fullmatch(name)
    if found or template is None or match is None:
        return found
    profile = f"{match[1]}+{match[4]}" if match[4] else match[1]
    selected = replace(template.rule.selector, profiles=(profile,))
    own = replace(template, rule=replace(template.rule, resource=name, selector=selected))
    rules.insert(rules.index(template), own)
    return [own]


def _report_missing(
    share: Share,
    placed: Sequence[PlacedRule],
    strategy: MigStrategy,
    problems: list[ConfigError],
    notes: list[Note],
) -> None:
    if _MIG_NAME.fullmatch(share.name):
        text = f"never gets a device in the plugin either: migStrategy {strategy} offers no MIG profiles by name"
        notes.append(Note(NoteKind.IDLE, share.origin, text))
        return
    known = ", ".join(dict.fromkeys(one.rule.resource.replace(PROFILE, "PROFILE") for one in placed))
    problem = f"is {shown(share.name)}, a resource that this file does not offer"
    problems.append(share.place.error(problem, f"write one of: {known}"))


def _is_shareable(
    group: list[Share],
    targets: list[PlacedRule],
    rules: list[PlacedRule],
    problems: list[ConfigError],
    notes: list[Note],
) -> bool:
    """Whether the strategy can share the devices of the rules; a rule of MIG devices beside one of GPUs is left out."""
    if group[0].sharing.strategy is not SharingStrategy.MPS:
        return True
    migs = [one for one in targets if one.rule.selector.kinds == (DeviceKind.MIG,)]
    if len(migs) == len(targets):
        problem = f"is {shown(group[0].name)}, but MPS shares whole GPUs only"
        problems.append(group[0].place.error(problem, "use timeSlicing for MIG devices"))
        return False
    for one in migs:
        rules.remove(one)
        targets.remove(one)
        text = "shares whole GPUs only: MIG devices are not offered on a node that has any (there the plugin ends)"
        notes.append(Note(NoteKind.REMARK, group[0].origin, text))
    return True


def _fit_together(group: list[Share], problems: list[ConfigError]) -> bool:
    """Whether no device is in two items; an item for all devices is the only one."""
    taken: dict[str, Share] = {}
    for share in group:
        for device in share.devices or ("*",):
            other = taken.get(device) or taken.get("*") or (next(iter(taken.values()), None) if device == "*" else None)
            if other is not None:
                what = device if device in other.devices else "some of its devices" if other.devices else "all of them"
                problem = f"is {shown(share.name)} again, which shares {what} in line {other.origin.line}"
                problems.append(share.place.error(problem, "remove one of the two"))
                return False
        taken.update(dict.fromkeys(share.devices or ("*",), share))
    return True


def _share(target: PlacedRule, group: list[Share], rules: list[PlacedRule], problems: list[ConfigError]) -> None:
    kept = [share for share in group if share.offered == share.name]
    own = tuple((device, share.sharing.replicas) for share in kept for device in share.devices)
    place = rules.index(target)
    if kept:
        sharing = replace(kept[0].sharing, own_replicas=(*own, ("*", 1)) if own else ())
        rules[place] = replace(target, rule=replace(target.rule, sharing=sharing), shared=kept[0].origin)
    for share in group:
        if share in kept:
            continue
        rule: Rule = replace(target.rule, resource=share.offered, sharing=share.sharing)
        if share.devices:
            rule = replace(rule, selector=replace(rule.selector, uuids=share.devices))
        if not check_name(rule, share.offered_at, problems):
            continue
        renamed = PlacedRule(rule, share.origin, share.offered_at, shared=share.origin)
        if share.devices:
            rules.insert(place, renamed)
            place += 1
        else:
            rules[place] = renamed


def _taken(share: Share) -> Note:
    offered = f", offered as {clipped(share.offered)}" if share.offered != share.name else ""
    devices = f" of {clipped(', '.join(share.devices))}" if share.devices else ""
    text = f"taken as sharing of {clipped(share.name)}: {share.sharing.strategy}, {share.sharing.replicas} replicas"
    return Note(NoteKind.TAKEN, share.origin, f"{text}{devices}{offered}")


def differs_there(share: Share) -> bool:
    """Whether NVIDIA's plugin overrules the item's names and devices."""
    return bool(share.devices) or share.offered not in (share.name, f"{share.name}{_SHARED_SUFFIX}")
