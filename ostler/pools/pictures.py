"""Pools as text: a table of kinds, a bar for each of them with a letter for each claim, and many nodes folded.

A bar has a cell for each device. A card that can be cut has a bar of its own with a cell for each unit that its
partitions divide. Nodes that have the same kinds of devices are one row of a table; a bar then stands for all nodes
with as many free devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle

from ostler.drawing.text import number
from ostler.explain.page import some, taint
from scheduling.allocator.claims import prevents
from scheduling.api.quantities import Format, Quantity
from scheduling.pools.overview import AmountSum, CutCard, PoolDeviceKind, PoolNode, cards_of
from scheduling.pools.published import AmountLeft, DeviceUser, PooledState, PublishedDevice, PublishedPool

Rows = list[tuple[str, ...]]

FEW = 8
"""Nodes that are shown one by one unless more are named."""
HEADER = ("NODE", "POOL", "DRIVER", "DEVICES", "FREE", "LEFT", "IN USE BY")
FOLDED_HEADER = ("NODES", "LIKE", "DRIVER", "DEVICES", "FREE", "LEFT", "IN USE BY")
SEVERAL = "(several)"
"""Stands for the name of a node in the row of a pool that several nodes reach."""
_FREE, _SHARED, _BLOCKED, _WITHHELD = ".", "*", "-", "!"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WIDEST = 64
"""Cells of one bar; a kind with more devices has only its numbers."""
_CLAIMS = 3
_LONG = 7
_BINARY, _DECIMAL = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), ("", "k", "M", "G", "T", "P", "E")


def rows(nodes: Iterable[PoolNode]) -> Rows:
    """A row for each kind of each pool; names of nodes and pools stand in the first of their rows."""
    found: Rows = []
    for node in nodes:
        last: tuple[str, str] = ("", "")
        for kind in node.kinds:
            here = (node.name or f"{SEVERAL} {number(len(kind.pool.nodes), 'node')}", kind.pool.name)
            first = ("" if here[0] == last[0] else here[0], "" if here == last else here[1])
            found.append((*first, kind.pool.driver, *_numbers([kind]), _users(kind)))
            last = here
    return found


def folded_rows(groups: Iterable[Sequence[PoolNode]]) -> Rows:
    """A row for each kind of the nodes that are alike; `LIKE` names the first of them."""
    found: Rows = []
    for group in groups:
        for position, kind in enumerate(group[0].kinds):
            same = [node.kinds[position] for node in group]
            first = (str(len(group)), group[0].name or SEVERAL) if position == 0 else ("", "")
            claims = {user.claim for each in same for user in each.users}
            found.append((*first, kind.pool.driver, *_numbers(same), number(len(claims), "claim") if claims else "-"))
    return found


def _numbers(kinds: Sequence[PoolDeviceKind]) -> tuple[str, str, str]:
    """How many devices there are on each node, how many are free on all of them, and what is left of amounts."""
    count = sum(len(each.devices) for each in kinds)
    free = sum(each.free for each in kinds)
    fault = kinds[0].pool.fault
    left = f"unusable: {fault}" if fault else ", ".join(map(_left, _summed(kinds))) or "-"
    return f"{len(kinds[0].devices)} {kinds[0].name}", f"{free} of {count}", left


def _summed(kinds: Sequence[PoolDeviceKind]) -> Iterator[AmountSum]:
    for position, first in enumerate(kinds[0].amounts):
        same = [each.amounts[position] for each in kinds]
        if len(same) == 1:
            yield first
        else:
            yield first.plus(same[1:])


def _left(amount: AmountSum | AmountLeft) -> str:
    return f"{amount.name} {short(amount.left)} of {short(amount.capacity)}"


def short(amount: Quantity) -> str:
    """An amount for people: beyond seven characters in larger units with one decimal, rounded down."""
    text = str(amount)
    if len(text) <= _LONG:
        return text
    base, units = (1024, _BINARY) if amount.format is Format.BINARY_SI else (1000, _DECIMAL)
    tenths, unit = amount.nanos * 10 // 10**9, 0
    while tenths >= 10 * base and unit < len(units) - 1:
        tenths, unit = tenths // base, unit + 1
    whole, tenth = divmod(tenths, 10)
    return f"{whole}{f'.{tenth}' if tenth else ''}{units[unit]}"


def _users(kind: PoolDeviceKind) -> str:
    counted = sorted(kind.users.items(), key=lambda pair: (-pair[1], pair[0].claim))
    named = [user.claim if count == 1 else f"{user.claim} ({count})" for user, count in counted]
    return some(named, _CLAIMS) or "-"


def pictures(node: PoolNode) -> Iterator[str]:
    """The lines of a node's bars."""
    for pool in node.pools:
        cards = cards_of(pool)
        cut = {each.name for card in cards for each in card.devices}
        for card in cards:
            yield from _card_lines(card, pool)
        for kind in node.kinds:
            devices = [each for each in kind.devices if each.name not in cut]
            if kind.pool is pool and devices:
                yield from _kind_lines(kind, devices)


def _kind_lines(kind: PoolDeviceKind, devices: Sequence[PublishedDevice]) -> Iterator[str]:
    letters = _lettered(devices)
    free = sum(each.state is PooledState.FREE for each in devices)
    bar = "".join(_cell(each, letters) for each in devices)
    shown = f" [{bar}]" if len(devices) <= _WIDEST else ""
    yield f"{kind.pool.name}, {kind.name}{shown} {free} of {len(devices)} free"
    yield from _legend(devices, letters)


def _card_lines(card: CutCard, pool: PublishedPool) -> Iterator[str]:
    """One bar of what the partitions divide, or what is left of it where it has no units."""
    letters = _lettered(card.devices)
    if not card.cells:
        yield f"{pool.name}, {card.whole.name}: {', '.join(map(_left, card.resources))} left"
    else:
        free = sum(bool(each.left.nanos) for each in card.cells)
        bar = "".join(_unit(card, each, letters) for each in card.cells)
        yield f"{pool.name}, {card.whole.name} [{bar}] {free} of {number(len(card.cells), card.cell_word)} free"
    yield from _legend([each for each in card.devices if each.state is not PooledState.BLOCKED], letters)


def _unit(card: CutCard, cell: AmountLeft, letters: Mapping[DeviceUser, str]) -> str:
    if cell.left.nanos:
        return _FREE
    taking = [each for each in card.devices if cell.name in each.document.requests and letters.keys() & _takers(each)]
    return _cell(taking[0], letters) if taking else _BLOCKED


def _takers(device: PublishedDevice) -> dict[DeviceUser, None]:
    """The claims that have a device, without those with admin access."""
    return dict.fromkeys(DeviceUser(each.claim, each.pods) for each in device.users if not each.admin)


def _lettered(devices: Iterable[PublishedDevice]) -> dict[DeviceUser, str]:
    """A letter for each claim, in the order of its devices."""
    users = dict.fromkeys(user for each in devices for user in _takers(each))
    return dict(zip(users, cycle(_LETTERS), strict=False))


def _cell(device: PublishedDevice, letters: Mapping[DeviceUser, str]) -> str:
    users = list(_takers(device))
    match device.state:
        case PooledState.FREE:
            return _FREE
        case PooledState.TAKEN | PooledState.SHARED:
            return letters[users[0]] if len(users) == 1 else _SHARED
        case PooledState.BLOCKED:
            return _BLOCKED
        case _:
            return _WITHHELD


def _legend(devices: Sequence[PublishedDevice], letters: Mapping[DeviceUser, str]) -> Iterator[str]:
    """The meaning of the cells: each claim and its devices, then the reasons that keep claims away from others."""
    for user, letter in letters.items():
        theirs = [f"{each.name}{_drawn(each, user)}" for each in devices if user in _takers(each)]
        if theirs:
            pods = f" ({number(len(user.pods), 'pod')} {some(user.pods, 2)})" if user.pods else ""
            yield f"  {letter}  {user.claim}{pods.replace('1 pod ', 'pod ')}: {some(theirs, 8)}"
    kept: dict[tuple[str, str], list[str]] = {}
    for each in devices:
        mark, why = _kept_away(each)
        if why:
            kept.setdefault((mark, why), []).append(each.name)
    for (mark, why), names in kept.items():
        yield f"  {mark}  {why}: {some(names, 8)}"


def _drawn(device: PublishedDevice, user: DeviceUser) -> str:
    """The parts of a device that a claim has."""
    drawn = [one for each in device.users if each.claim == user.claim for one in each.amounts]
    return f" ({', '.join(f'{each.name} {each.allocation}' for each in drawn)})" if drawn else ""


def _kept_away(device: PublishedDevice) -> tuple[str, str]:
    match device.state:
        case PooledState.BLOCKED:
            return _BLOCKED, f"too little is left of {some(device.lacking)}"
        case PooledState.TAINTED:
            found = next(each for each in device.taints if prevents(each))
            return _WITHHELD, f"tainted {taint(found.key, found.value, found.effect)}"
        case _:
            return "", ""


def folded_pictures(group: Sequence[PoolNode]) -> Iterator[str]:
    """How many free devices the nodes of a group have: a bar for each number, the most first."""
    for position, kind in enumerate(group[0].kinds):
        nodes: dict[int, list[str]] = {}
        for node in group:
            nodes.setdefault(node.kinds[position].free, []).append(node.name)
        yield f"{kind.name}: free on {number(len(group), 'node')} like {group[0].name or SEVERAL}"
        width = len(kind.devices)
        for free, names in sorted(nodes.items(), reverse=True):
            bar = f" [{_FREE * free}{'#' * (width - free)}]" if width <= _WIDEST else ""
            yield f"  {free:>{len(str(width))}}{bar} {number(len(names), 'node')}: {some(names)}"


def totals(nodes: Sequence[PoolNode]) -> str:
    """One line: of every kind how many devices are free."""
    free: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for kind in (kind for node in nodes for kind in node.kinds):
        free[kind.name] += kind.free
        count[kind.name] += len(kind.devices)
    pools = [pool for node in nodes for pool in node.pools]
    where = f"{number(sum(bool(node.name) for node in nodes), 'node')}, {number(len(pools), 'pool')}"
    if len(count) > _CLAIMS:
        return f"{where}: {free.total()} of {number(count.total(), 'device')} free"
    return (
        f"{where}: {', '.join(f'{free[name]} of {all_} {name} free' for name, all_ in count.items()) or 'no devices'}"
    )


def is_folded(nodes: Sequence[PoolNode]) -> bool:
    """True if there are too many nodes to show each of them."""
    return len(nodes) > FEW
