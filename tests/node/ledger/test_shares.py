"""Shares, parts and wholes of one device: what fits together, through both doors, and the words of what does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.ledger.holds import HeldError, Hold, HoldState, excludes, pending_owner, plugin_owner
from node.ledger.ledger import Ledger
from node.rules import Door
from node.sharing import COMPUTE, MEMORY, Amounts
from node.values import replace

WHOLE: Amounts = ((COMPUTE, 4), (MEMORY, 8))
PARTS: Mapping[str, tuple[int, int] | None] = {"mig-0": (0, 4), "mig-2": (2, 2), "mig-4": (4, 4), "mig-?": None}
"""Parts of ``gpu`` by the slices that they take."""


def share(
    name: str, owner: str = "", door: Door = Door.DRA, *, compute: int = 1, memory: int = 2, device: str = "gpu"
) -> Hold:
    amounts = ((COMPUTE, compute), (MEMORY, memory))
    within = ("gpu",) if device in PARTS else ()
    owner = owner or (plugin_owner(device, name) if door is Door.PLUGIN else name)
    return Hold(
        device, door, f"team/{name}", 0.0, owner, name, within=within, amounts=amounts, whole=WHOLE,
        slices=PARTS.get(device),
    )  # fmt: skip


def whole(owner: str, device: str = "gpu", door: Door = Door.DRA) -> Hold:
    within = ("gpu",) if device in PARTS else ()
    return Hold(device, door, f"team/{owner}", 0.0, owner, within=within, slices=PARTS.get(device))


def replica(number: int, compute: int = 1, memory: int = 2) -> Hold:
    return share(str(number), door=Door.PLUGIN, compute=compute, memory=memory)


def test_shares_of_both_doors_fit_while_their_sum_does() -> None:
    ledger = Ledger()
    ledger.take_each([replica(0), replica(1)])
    ledger.take("a", [share("s", "a", compute=2, memory=4)])
    with pytest.raises(HeldError):
        ledger.take_each([replica(2)])
    ledger.release(plugin_owner("gpu", "1"))
    ledger.take_each([replica(2)])


def test_a_whole_and_a_share_exclude_each_other_through_every_door() -> None:
    for door in Door:
        for other in Door:
            assert excludes(whole("a", door=door), share("s", "b", other))
    for part in PARTS:
        assert excludes(whole("a", part), share("s", "b")), "a part excludes shares of its whole"
        assert excludes(share("r", "a", device=part), whole("b"))
        assert excludes(share("r", "a", device=part), share("s", "b"))


def test_a_partition_is_shared_like_any_device() -> None:
    ledger = Ledger()
    ledger.take("a", [share("s", "a", compute=2, device="mig-0")])
    ledger.take("b", [share("r", "b", compute=2, device="mig-0")])
    ledger.take("c", [share("q", "c", compute=4, device="mig-4")])
    with pytest.raises(HeldError, match="device mig-0 has too little left for share p"):
        ledger.take("d", [share("p", "d", device="mig-0")])


def test_parts_exclude_each_other_if_they_take_the_same_slices() -> None:
    assert excludes(whole("a", "mig-0"), whole("b", "mig-2"))
    assert not excludes(whole("a", "mig-0"), whole("b", "mig-4"))
    assert not excludes(whole("a", "mig-0"), whole("b", "mig-?"))
    elsewhere = replace(whole("b", "mig-2"), device="mig-9", within=("gpu-9",))
    assert not excludes(whole("a", "mig-0"), elsewhere)
    ledger = Ledger()
    ledger.take("a", [whole("a", "mig-0")])
    with pytest.raises(HeldError) as refused:
        ledger.take("b", [whole("b", "mig-2")])
    assert str(refused.value) == (
        "device mig-2 takes the same slices of gpu as mig-0, which is held through the dra door by team/a (a)"
    )


def test_shares_of_both_doors_exclude_each_other_where_nobody_counts_them() -> None:
    assert excludes(replace(share("s", "a"), amounts=()), replica(0))
    assert excludes(share("s", "a"), replace(replica(0), whole=()))
    assert not excludes(replace(share("s", "a"), amounts=()), share("r", "b"))


def test_a_share_that_does_not_fit_is_told_what_is_left_and_who_has_the_rest() -> None:
    million = 1_000_000
    gib = 1 << 30
    size: Amounts = ((COMPUTE, million), (MEMORY, 40 * gib))

    def sized(hold: Hold, percent: int, memory: int) -> Hold:
        return replace(hold, amounts=((COMPUTE, percent * million // 100), (MEMORY, memory * gib)), whole=size)

    ledger = Ledger()
    ledger.take_each([sized(replica(0), 25, 10), sized(replica(1), 25, 10)])
    with pytest.raises(HeldError) as refused:
        ledger.take("a", [sized(share("s", "a"), 60, 10)])
    assert str(refused.value) == (
        "device gpu has too little left for share s, which takes 60% of compute and 10 GiB of memory: 50% of compute "
        "and 20 GiB of memory are left; it is held through the plugin door by team/0 as share 0 (25% of compute and 10 "
        "GiB of memory), held through the plugin door by team/1 as share 1 (25% of compute and 10 GiB of memory)"
    )
    assert refused.value.by.door is Door.PLUGIN
    ledger.take_each([sized(replica(number), 10, 1) for number in (2, 3, 4)])
    with pytest.raises(HeldError, match=r", and 2 more shares are held$"):
        ledger.take("a", [sized(share("s", "a"), 60, 10)])


replicas = st.builds(replica, st.integers(0, 5), st.integers(0, 3), st.integers(0, 3))


@given(
    st.lists(replicas, max_size=4), st.lists(replicas, min_size=2, max_size=4, unique_by=lambda hold: hold.share),
    st.booleans(),
)  # fmt: skip
def test_shares_taken_at_once_are_taken_where_their_sum_fits(
    before: list[Hold], wanted: list[Hold], watched: bool
) -> None:
    ledger = Ledger()
    if watched:
        ledger.take("watcher", [replace(whole("watcher"), admin=True)])
    for hold in before:
        ledger.restore(hold.owner, [hold])
    # What is allocated again counts once.
    shares = {hold.owner: hold for hold in (*before, *wanted)}.values()
    sums = {name: sum(dict(hold.amounts)[name] for hold in shares) for name in (COMPUTE, MEMORY)}
    if sums[COMPUTE] <= 4 and sums[MEMORY] <= 8:
        ledger.take_each(wanted)
        assert {hold for hold in ledger.all if not hold.admin} == set(shares)
    else:
        with pytest.raises(HeldError):
            ledger.take_each(wanted)


def test_thousands_of_shares_are_taken_by_their_sum() -> None:
    # Compared in pairs they would take minutes.
    many = [replace(replica(number, 1, 1), whole=((COMPUTE, 5000), (MEMORY, 5000))) for number in range(5000)]
    ledger = Ledger()
    ledger.take("watcher", [replace(whole("watcher"), admin=True)])
    ledger.take_each(many)
    with pytest.raises(HeldError):
        ledger.take_each([replace(many[0], share="more", owner="more")])


def test_no_share_is_larger_than_its_device() -> None:
    with pytest.raises(HeldError, match="has too little left for share s, which takes 125% of compute: 100% of"):
        Ledger().take("a", [replace(share("s", "a"), amounts=((COMPUTE, 1250000),), whole=((COMPUTE, 1000000),))])
    with pytest.raises(HeldError, match="512 MiB of memory: 0 bytes of memory are left"):
        Ledger().take("a", [replace(share("s", "a"), amounts=((MEMORY, 1 << 29),), whole=((COMPUTE, 1000000),))])


def test_whoever_has_to_end_for_a_share_to_fit_is_named_as_what_is_in_the_way() -> None:
    def by(*held: Hold, wanted: Hold) -> Hold:
        ledger = Ledger()
        for hold in held:
            ledger.take(hold.owner, [hold])
        found = ledger.obstacle(wanted)
        assert found is not None
        return found

    pending = replace(replica(0), door=None, owner=pending_owner("gpu", "0"), state=HoldState.PENDING_RELEASE)
    claim, large = share("s", "a", compute=2), share("r", "b", compute=3)
    assert by(pending, claim, wanted=share("r", "b", compute=2)) == pending, "it fits when that has been given back"
    assert by(replica(1), claim, wanted=large) == claim, "another claim must end, whatever pods have"
    assert by(replica(1), replica(2), wanted=large) == replica(1)
    assert by(claim, replica(1), wanted=replica(2, compute=2)) == claim, "beside the pods it would fit"


def test_a_replica_that_is_pending_release_is_given_to_nobody_else_and_counts() -> None:
    pending = replace(replica(0), door=None, owner=pending_owner("gpu", "0"), state=HoldState.PENDING_RELEASE)
    ledger = Ledger()
    ledger.restore(pending.owner, [pending])
    with pytest.raises(HeldError, match="device gpu is pending release: team/0"):
        ledger.take_each([replica(0)])
    ledger.take_each([replica(1), replica(2), replica(3)])
    with pytest.raises(HeldError):
        ledger.take_each([replica(4)])


def test_a_replica_that_the_plugin_door_allocates_again_counts_once() -> None:
    waiting = replace(replica(0), state=HoldState.PENDING_RELEASE)
    ledger = Ledger()
    ledger.restore(waiting.owner, [waiting])
    ledger.take_each([replica(1), replica(2), replica(3)])
    ledger.take_each([replica(0)])
    assert {hold.share for hold in ledger.all} == {"0", "1", "2", "3"}


def test_shares_of_one_claim_count_together() -> None:
    with pytest.raises(HeldError):
        Ledger().take("a", [share("s", "a", compute=3), share("r", "a", compute=3)])
    ledger = Ledger()
    ledger.take("a", [share("s", "a", compute=3)])
    ledger.take("a", [share("r", "a", compute=3)])
    [refused] = ledger.reserve("b", [share("q", "b"), share("p", "b")])
    assert refused.wanted.share == "p"


def test_admin_access_to_a_share_takes_nothing() -> None:
    ledger = Ledger()
    ledger.take("a", [replace(share("s", "a", compute=4), admin=True)])
    ledger.take("b", [share("r", "b", compute=4)])
    ledger.take("c", [replace(share("q", "c", compute=4), admin=True)])


# Everything that can be held of one GPU, in small amounts: what fits is counted by hand in ``legal``.

SIZES = st.integers(0, 5)
OWNERS = ("a", "b", "c", "d")
WISHES = st.one_of(
    st.builds(
        lambda name, door, compute, memory, device: share(
            name, "?", door, compute=compute, memory=memory, device=device
        ),
        st.sampled_from(("0", "1", "s", "r")), st.sampled_from(Door), SIZES, SIZES, st.sampled_from(("gpu", "mig-0")),
    ),
    st.builds(lambda device, door: whole("?", device, door), st.sampled_from(("gpu", *PARTS)), st.sampled_from(Door)),
)  # fmt: skip
STEPS = st.tuples(
    st.sampled_from(("take", "each", "reserve", "release")), st.sampled_from(OWNERS), st.lists(WISHES, max_size=3)
)


def legal(holds: Sequence[Hold]) -> bool:
    """Whether these can be held at a time: by what every owner has of every device and slice."""
    for one, other in combinations(holds, 2):
        if one.owner == other.owner:
            continue
        if one.device == other.device:
            if not (one.share and other.share) or one.share == other.share:
                return False
        elif "gpu" in (one.device, other.device):
            return False
        else:
            mine, others = (set(range(a, a + n)) for a, n in (each.slices or (0, 0) for each in (one, other)))
            if mine & others:
                return False
    for device in ("gpu", "mig-0"):
        shares = [dict(hold.amounts) for hold in holds if hold.device == device and hold.share]
        if any(sum(each[name] for each in shares) > size for name, size in WHOLE):
            return False
    return True


def of(owner: str, wishes: Iterable[Hold]) -> tuple[Hold, ...]:
    return tuple(replace(wish, owner=owner) for wish in wishes)


@given(st.lists(STEPS, max_size=10))
def test_no_history_gives_a_device_more_than_its_size(history: list[tuple[str, str, list[Hold]]]) -> None:
    ledger, held = Ledger(), dict[str, tuple[Hold, ...]]()
    for step, owner, wishes in history:
        wanted = of(owner, wishes)
        others = [hold for other, holds in held.items() if other != owner for hold in holds]
        if step == "release":
            ledger.release(owner)
            held.pop(owner, None)
        elif step == "reserve":
            free: list[Hold] = []
            for hold in wanted:
                if legal([*others, *free, hold]):
                    free.append(hold)
            refused = ledger.reserve(owner, wanted)
            assert len(refused) == len(wanted) - len(free)
            held[owner] = tuple(free)
        else:
            # With one owner each, as Allocate does, or all for one.
            each = [replace(hold, owner=f"{owner}{number}") for number, hold in enumerate(wanted)]
            mine = {hold.owner: (hold,) for hold in each} if step == "each" else {owner: wanted}
            others = [hold for other, holds in held.items() if other not in mine for hold in holds]
            fits = legal([*others, *(hold for holds in mine.values() for hold in holds)])
            try:
                ledger.take_each(each) if step == "each" else ledger.take(owner, wanted)
                assert fits
                held |= mine
            except HeldError:
                assert not fits
        assert sorted(map(str, ledger.all)) == sorted(str(hold) for holds in held.values() for hold in holds)
        assert legal(ledger.all)


@given(WISHES, WISHES)
def test_exclusion_of_shares_and_parts_is_symmetric(one: Hold, other: Hold) -> None:
    one, other = replace(one, owner="a"), replace(other, owner="b")
    assert excludes(one, other) == excludes(other, one)


@given(st.lists(WISHES, max_size=5), WISHES)
def test_what_the_world_has_too_much_of_leaves_nothing_until_it_is_given_back(had: list[Hold], wanted: Hold) -> None:
    ledger = Ledger()
    for number, hold in enumerate(had):
        ledger.restore(str(number), of(str(number), [hold]))
    assert len(ledger.all) == len(had), "nothing that the world has is forgotten"
    wanted = replace(wanted, owner="new")
    while ledger.conflict(wanted) is not None and ledger.owners:
        assert not legal([*ledger.all, wanted])
        ledger.release(ledger.owners[0])
    if legal([wanted]):
        ledger.take("new", [wanted])


def test_what_the_checkpoint_alone_has_of_unknown_pods_keeps_claims_away_and_no_pods() -> None:
    ledger = Ledger()
    for number in range(4, 8):
        hold = replace(replica(number), state=HoldState.RECORDED)
        ledger.restore(hold.owner, [hold])
    with pytest.raises(HeldError):
        ledger.take("a", [share("s", "a")])
    ledger.take_each([replica(0)])
    ledger.release(plugin_owner("gpu", "7"))
    ledger.release(plugin_owner("gpu", "6"))
    ledger.take("a", [share("s", "a")])
    with pytest.raises(HeldError):
        ledger.take_each([replica(1)])
