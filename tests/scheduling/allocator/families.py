"""Small claims that need exponentially many steps of a search that tries everything, by what makes them so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.making.claims import claim, distinct, exactly, first_available, match, request
from tests.making.slices import Json, device, of, slices


@dataclass(frozen=True, slots=True)
class WorldFamily:
    """One member of a family. `fits`: whether an allocation exists, by the argument that made it."""

    slices: Sequence[Json]
    claims: Sequence[Json]
    fits: bool = False
    lists: bool = False


def _numbered(count: int, prefix: str = "r") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def _requests(count: int, *args: object, prefix: str = "r", **fields: object) -> list[Json]:
    return [request(name, *args, **fields) for name in _numbered(count, prefix)]


def shared_one_short(devices: int, capacity: int, amount: int, requests: int) -> WorldFamily:
    """Shared devices that hold fewer shares than are asked for."""
    made = [device(f"d{each}", capacity={"mem": capacity}, shared=True) for each in range(devices)]
    return WorldFamily(slices(made), [claim(_requests(requests, capacity={"requests": {"mem": str(amount)}}))])


def shared_mixed() -> WorldFamily:
    """Six devices of 7 are full with 9 shares of 2 and 8 of 3 by number, but no way to cut them has so many threes."""
    made = [device(f"d{each}", capacity={"mem": 7}, shared=True) for each in range(6)]
    wanted = [request(f"r{each}", capacity={"requests": {"mem": str(3 if each % 2 else 2)}}) for each in range(17)]
    return WorldFamily(slices(made), [claim(wanted)])


def shared_beside_dedicated() -> WorldFamily:
    """Fifteen requests for twelve devices, one of them shared by two."""
    made = [device("s", capacity={"mem": 2}, shared=True)]
    made += [device(f"d{each}", {"index": each}, capacity={"mem": 2}) for each in range(12)]
    names = _numbered(12)
    wanted = _requests(15, capacity={"requests": {"mem": "1"}})
    return WorldFamily(slices(made), [claim(wanted, distinct("index", *names))])


def shared_last_impossible() -> WorldFamily:
    """The last request asks for a model that there is not."""
    made = [device(f"d{each}", {"model": "a"}, capacity={"mem": 4}, shared=True) for each in range(8)]
    wanted = _requests(12, capacity={"requests": {"mem": "1"}})
    return WorldFamily(slices(made), [claim([*wanted, request("last", selector=f'{of("model")} == "b"')])])


_PROFILES = ((1, 7), (2, 3), (3, 2), (4, 1))
"""Sizes of partitions of a GPU of 7 slices, and how many of each it offers."""


def partitions(gpus: int) -> list[Json]:
    """The slices of a pool of GPUs cut into partitions, a counter set for each GPU."""
    made = [
        device(f"g{gpu}-{size}-{each}", {"size": size, "gpu": gpu}, counters={f"set-{gpu}": {"slices": size}})
        for gpu in range(gpus)
        for size, many in _PROFILES
        for each in range(many)
    ]
    return slices(made, {f"set-{gpu}": {"slices": 7} for gpu in range(gpus)})


def _partition(size: int) -> str:
    return f"{of('size')} == {size}"


def partitions_wanted(wanted: Mapping[int, int], gpus: int = 8) -> WorldFamily:
    """So many partitions of each size, more than fit."""
    made = [
        request(f"s{size}-{each}", selector=_partition(size)) for size, many in wanted.items() for each in range(many)
    ]
    return WorldFamily(partitions(gpus), [claim(made)])


def partitions_by_count() -> WorldFamily:
    """The same in three requests of many."""
    made = [request(f"s{size}", many, _partition(size)) for size, many in ((4, 8), (3, 8), (1, 1))]
    return WorldFamily(partitions(8), [claim(made)])


def partitions_by_preference() -> WorldFamily:
    """Seventeen partitions of 4 or, failing that, of 3; a GPU has two of them at most."""
    made = [
        first_available(name, exactly(selector=_partition(4)), exactly(selector=_partition(3)))
        for name in _numbered(17)
    ]
    return WorldFamily(partitions(8), [claim(made)])


def partitions_of_one_gpu_each(claims: int) -> WorldFamily:
    """Each claim wants 3, 2 and twice 1 of one GPU of four: all of its 7 slices."""
    made = [
        claim(
            [
                request("a", selector=_partition(3)),
                request("b", selector=_partition(2)),
                request("c", 2, _partition(1)),
            ],
            match("gpu"),
            name=f"claim-{number}",
        )
        for number in range(claims)
    ]
    return WorldFamily(partitions(4), made, fits=claims <= 4)


def counter_one_short(devices: int, wanted: int) -> WorldFamily:
    """Devices that take 1 of a counter that has one too few."""
    made = [device(f"d{each}", {"index": each}, counters={"set": {"x": 1}}) for each in range(devices)]
    return WorldFamily(slices(made, {"set": {"x": wanted - 1}}), [claim(_requests(wanted))])


def counter_of_many_prices() -> WorldFamily:
    """Six of twenty devices that take 10 to 29 of a counter of 74: the cheapest six take 75."""
    made = [device(f"d{each}", counters={"set": {"x": 10 + each}}) for each in range(20)]
    return WorldFamily(slices(made, {"set": {"x": 74}}), [claim(_requests(6))])


def counters_of_two_kinds() -> WorldFamily:
    """What is cheap in one counter is dear in the other."""
    made = [device(f"d{each}", counters={"set": {"x": 10 + each, "y": 30 - each}}) for each in range(20)]
    return WorldFamily(slices(made, {"set": {"x": 110, "y": 120}}), [claim(_requests(6))])


def counters_across_sets() -> WorldFamily:
    """Nine devices that take 2 to 4 of one of two sets, which hold eight of them at best."""
    made = [
        device(f"d{each}", {"index": each}, counters={"a" if each % 2 else "b": {"x": 2 + each % 3}})
        for each in range(20)
    ]
    return WorldFamily(slices(made, {"a": {"x": 9}, "b": {"x": 8}}), [claim(_requests(9))])


def distinct_one_short(*, by_count: bool) -> WorldFamily:
    """Twelve devices of different values where there are eleven values."""
    made = [device(f"d{each}", {"value": each % 11, "index": each}) for each in range(33)]
    wanted = [request("r", 12)] if by_count else _requests(12)
    return WorldFamily(slices(made), [claim(wanted, distinct("value"))])


def distinct_twice() -> WorldFamily:
    """Different in two attributes, and the last must have values that only one device has."""
    made = [device(f"d{each}", {"row": each % 6, "column": each // 6}) for each in range(36)]
    last = request("last", selector=f"{of('row')} == 0 && {of('column')} == 0")
    return WorldFamily(slices(made), [claim([*_requests(6), last], distinct("row"), distinct("column"))])


def queens() -> WorldFamily:
    """Nine queens on a board of eight."""
    made = [
        device(f"d{row}-{column}", {"row": row, "column": column, "up": row + column, "down": row - column})
        for row in range(8)
        for column in range(8)
    ]
    return WorldFamily(
        slices(made), [claim(_requests(9), *(distinct(each) for each in ("row", "column", "up", "down")))]
    )


def match_last_impossible() -> WorldFamily:
    """Any pair of equal value will do, and the last request finds nothing."""
    made = [device(f"d{each}", {"root": each // 2, "index": each}) for each in range(40)]
    wanted = [request("a", 2), request("b", 2), request("c")]
    return WorldFamily(slices(made), [claim(wanted, match("root", "a"), match("root", "b"), match("nosuch", "c"))])


def match_chain() -> WorldFamily:
    """A chain of pairs that match by row and by column in turn, whose ends exclude each other."""
    made = [device(f"d{row}-{column}", {"r": row, "c": column}) for row in range(6) for column in range(6)]
    ends = [
        request("y", selector=f"{of('r')} == 2 && {of('c')} == 2"),
        request("z", selector=f"{of('r')} == 1 && {of('c')} == 1"),
    ]
    links = [match("rc"[each % 2], f"r{each}", f"r{each + 1}") for each in range(6)]
    made_claim = claim(
        [*_requests(7), *ends], *links, match("r", "r6", "z"), match("c", "r6", "y"), match("r", "y", "z")
    )
    return WorldFamily(slices(made), [made_claim])


def match_lists() -> WorldFamily:
    """Values are lists; two devices that share none must both join the same set."""
    made = [device(f"d{each}", {"n": [each % 5, (each * 3 + 1) % 7], "index": each}) for each in range(24)]
    ends = [request("y", selector=f"{of('index')} == 10"), request("z", selector=f"{of('index')} == 1")]
    names = _numbered(6)
    constraints = [match("n", *names[:3]), match("n", *names[3:]), match("n", "y", "z", "r5")]
    return WorldFamily(slices(made), [claim([*_requests(6), *ends], *constraints)], lists=True)


def pairs_of_equal_value(*, claims: bool) -> WorldFamily:
    """Nine pairs of equal root; eight roots have three devices each."""
    made = [device(f"d{each}", {"root": each // 3, "index": each}) for each in range(24)]
    if claims:
        wanted = [claim(_requests(2), match("root"), distinct("index"), name=f"claim-{each}") for each in range(9)]
        return WorldFamily(slices(made), wanted)
    names = _numbered(9)
    return WorldFamily(
        slices(made), [claim([request(name, 2) for name in names], *(match("root", name) for name in names))]
    )


def overlapping_choices() -> WorldFamily:
    """Six requests that want two of five devices each, the two beside each other; before them eight harmless ones."""
    made = [device(f"d{each}", {"index": each}) for each in range(14)]
    harmless = _requests(8, selector=f"{of('index')} > 4", prefix="e")
    crossing = [
        request(name, selector=f"{of('index')} in [{each % 5}, {(each + 1) % 5}]")
        for each, name in enumerate(_numbered(6))
    ]
    return WorldFamily(slices(made), [claim(harmless + crossing, distinct("index"))])


def pigeonholes(*alternatives: Json) -> WorldFamily:
    """Eleven requests by preference for ten devices."""
    made = [device(f"d{each}", {"index": each, "odd": each % 2}) for each in range(10)]
    return WorldFamily(slices(made), [claim([first_available(name, *alternatives) for name in _numbered(11)])])


def pigeonholes_of_two_sorts() -> WorldFamily:
    """Two even devices or one odd one, of seven each: ten requests at most."""
    made = [device(f"d{each}", {"index": each, "odd": each % 2}) for each in range(14)]
    choice = (exactly(2, f"{of('odd')} == 0"), exactly(1, f"{of('odd')} == 1"), exactly(30))
    wanted = [first_available(name, *choice) for name in _numbered(12)]
    return WorldFamily(slices(made), [claim(wanted)])


def three_claims() -> WorldFamily:
    """The last of three claims asks for more than the others leave."""
    made = [device(f"d{each}", {"index": each}) for each in range(14)]
    counts = (5, 5, 5)
    return WorldFamily(
        slices(made), [claim(_requests(each), distinct("index"), name=f"claim-{n}") for n, each in enumerate(counts)]
    )


def admin_beside_ordinary() -> WorldFamily:
    """Admin access to seven devices, then eight of the other seven."""
    made = [device(f"d{each}", {"index": each}) for each in range(14)]
    wanted = _requests(7, prefix="a", adminAccess=True) + _requests(8)
    return WorldFamily(slices(made), [claim(wanted, distinct("index"))])


def all_after_others() -> WorldFamily:
    """Mode All wants three devices, and one request more wants one of the three."""
    made = [device(f"d{each}", {"index": each}) for each in range(16)]
    wanted = [*_requests(7), request("a", 0, f"{of('index')} <= 2"), request("b", selector=f"{of('index')} == 2")]
    return WorldFamily(slices(made), [claim(wanted, distinct("index"))])


FAMILIES: Mapping[str, Callable[[], WorldFamily]] = {
    "shared devices, one share short": lambda: shared_one_short(8, 3, 1, 25),
    "shared devices, waste in each": lambda: shared_one_short(8, 5, 2, 17),
    "shared devices, shares of two sizes": shared_mixed,
    "one shared device among dedicated ones": shared_beside_dedicated,
    "shared devices, last request impossible": shared_last_impossible,
    "partitions, one slice short": lambda: partitions_wanted({4: 8, 3: 8, 1: 1}),
    "partitions, waste in each": lambda: partitions_wanted({3: 16, 2: 1}),
    "partitions, small ones first": lambda: partitions_wanted({2: 12, 3: 11}),
    "partitions, two sizes": lambda: partitions_wanted({2: 9, 4: 8}),
    "partitions by count": partitions_by_count,
    "partitions by preference": partitions_by_preference,
    "partitions of one GPU for each claim, one claim too many": lambda: partitions_of_one_gpu_each(5),
    "partitions of one GPU for each claim": lambda: partitions_of_one_gpu_each(4),
    "a counter one short": lambda: counter_one_short(24, 12),
    "a counter that the cheapest devices exceed": counter_of_many_prices,
    "two counters, cheap in one is dear in the other": counters_of_two_kinds,
    "counters of two sets": counters_across_sets,
    "one distinct value short": lambda: distinct_one_short(by_count=False),
    "one distinct value short, by count": lambda: distinct_one_short(by_count=True),
    "distinct in two attributes": distinct_twice,
    "nine queens": queens,
    "pairs that match, last request impossible": match_last_impossible,
    "a chain of matches": match_chain,
    "matches of lists": match_lists,
    "one pair too many": lambda: pairs_of_equal_value(claims=False),
    "one claim for a pair too many": lambda: pairs_of_equal_value(claims=True),
    "overlapping choices": overlapping_choices,
    "pigeonholes by preference": lambda: pigeonholes(exactly(2), exactly(1)),
    "pigeonholes with an alternative above the limit": lambda: pigeonholes(exactly(33), exactly(1)),
    "pigeonholes of two sorts": pigeonholes_of_two_sorts,
    "three claims": three_claims,
    "admin access beside ordinary requests": admin_beside_ordinary,
    "mode All after others": all_after_others,
}
