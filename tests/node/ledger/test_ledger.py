from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.ledger.holds import HeldError, Hold, HoldState, excludes
from node.ledger.ledger import HoldsReleased, HoldsTaken, Ledger
from node.rules import Door
from node.values import replace

_WHOLES = {"gpu-0": (), "gpu-1": (), "mig-0-a": ("gpu-0",), "mig-0-b": ("gpu-0",), "mig-1-a": ("gpu-1",)}

_wanted = st.tuples(st.sampled_from(sorted(_WHOLES)), st.sampled_from(["", "", "s1", "s2"]), st.booleans())


def hold(device: str, owner: str = "uid-1", share: str = "", admin: bool = False, door: Door = Door.DRA) -> Hold:
    within = _WHOLES.get(device, ())
    return Hold(device, door, f"default/{owner}", 1.0, owner=owner, share=share, admin=admin, within=within)


holds = st.builds(
    lambda wanted, owner, door: hold(wanted[0], owner, wanted[1], wanted[2], door),
    _wanted,
    st.sampled_from(["uid-1", "uid-2", "uid-3"]),
    st.sampled_from(list(Door)),
)


def test_a_held_device_is_refused_and_the_text_names_door_and_holder() -> None:
    ledger = Ledger()
    ledger.take("uid-1", [hold("gpu-0")])
    with pytest.raises(HeldError) as refused:
        ledger.take("uid-2", [hold("gpu-0", "uid-2")])
    assert str(refused.value) == "device gpu-0 is held through the dra door by default/uid-1 (uid-1)"
    assert refused.value.by.owner == "uid-1"


def test_a_part_and_its_whole_exclude_each_other_and_the_text_says_how() -> None:
    ledger = Ledger()
    ledger.take("uid-1", [hold("mig-0-a")])
    with pytest.raises(HeldError, match="device gpu-0, whose part mig-0-a is held"):
        ledger.take("uid-2", [hold("gpu-0", "uid-2")])
    ledger.take("uid-2", [hold("gpu-1", "uid-2")])
    with pytest.raises(HeldError, match="device mig-1-a, which is part of gpu-1, is held"):
        ledger.take("uid-3", [hold("mig-1-a", "uid-3")])


def test_siblings_do_not_exclude_each_other() -> None:
    ledger = Ledger()
    ledger.take("uid-1", [hold("mig-0-a")])
    ledger.take("uid-2", [hold("mig-0-b", "uid-2")])
    assert set(ledger.by_device()) == {"mig-0-a", "mig-0-b"}


def test_each_share_has_one_holder() -> None:
    ledger = Ledger()
    ledger.take("uid-1", [hold("gpu-0", share="s1")])
    ledger.take("uid-2", [hold("gpu-0", "uid-2", share="s2")])
    with pytest.raises(HeldError, match=r"by default/uid-2 \(uid-2\) as share s2"):
        ledger.take("uid-3", [hold("gpu-0", "uid-3", share="s2")])
    with pytest.raises(HeldError):
        ledger.take("uid-3", [hold("gpu-0", "uid-3")])


def test_a_share_of_a_whole_excludes_a_share_of_its_part() -> None:
    assert excludes(hold("gpu-0", share="s1"), hold("mig-0-a", "uid-2", share="s2"))


def test_a_device_shared_through_one_door_is_not_shared_with_the_other() -> None:
    assert excludes(hold("gpu-0", share="s1"), hold("gpu-0", "uid-2", share="s2", door=Door.PLUGIN))


def test_admin_access_neither_waits_nor_keeps_others_away() -> None:
    ledger = Ledger()
    ledger.take("uid-1", [hold("gpu-0", admin=True)])
    ledger.take("uid-2", [hold("gpu-0", "uid-2")])
    ledger.take("uid-3", [hold("gpu-0", "uid-3", admin=True)])
    assert ledger.by_device()["gpu-0"].owner == "uid-2"


def test_a_refused_taking_changes_nothing() -> None:
    ledger = Ledger()
    ledger.take("uid-1", [hold("gpu-0")])
    ledger.take("uid-2", [hold("mig-1-a", "uid-2")])
    before = ledger.all
    with pytest.raises(HeldError):
        ledger.take("uid-2", [hold("gpu-1", "uid-2"), hold("gpu-0", "uid-2")])
    assert ledger.all == before
    assert ledger.of("uid-2") == (hold("mig-1-a", "uid-2"),)


def test_taking_again_replaces_what_the_owner_has() -> None:
    ledger = Ledger()
    ledger.take("uid-1", [hold("gpu-0")])
    ledger.take("uid-1", [hold("mig-0-a"), hold("mig-0-b")])
    assert set(ledger.by_device()) == {"mig-0-a", "mig-0-b"}
    assert ledger.release("uid-1") == (hold("mig-0-a"), hold("mig-0-b"))
    assert ledger.release("uid-1") == ()


def test_what_a_restart_finds_is_entered_whatever_contradicts_it() -> None:
    ledger = Ledger()
    assert ledger.restore("uid-1", [hold("gpu-0")]) == ()
    [conflict] = ledger.restore("uid-2", [hold("gpu-0", "uid-2")])
    assert conflict.by.owner == "uid-1"
    assert [each.owner for each in ledger.all] == ["uid-1", "uid-2"]
    ledger.release("uid-1")
    with pytest.raises(HeldError):
        ledger.take("uid-3", [hold("gpu-0", "uid-3")])


def test_holds_of_somebody_else_are_a_defect() -> None:
    with pytest.raises(ValueError, match="uid-2 cannot enter a hold of uid-1"):
        Ledger().take("uid-2", [hold("gpu-0", "uid-1")])


@given(holds, holds)
def test_exclusion_is_symmetric(one: Hold, other: Hold) -> None:
    assert excludes(one, other) == excludes(other, one)


@given(holds)
def test_nobody_excludes_themselves(one: Hold) -> None:
    assert not excludes(one, one)


@given(st.lists(st.tuples(st.sampled_from(["uid-1", "uid-2", "uid-3"]), st.lists(_wanted, max_size=3))))
def test_any_history_leaves_a_ledger_without_contradictions(
    history: list[tuple[str, list[tuple[str, str, bool]]]],
) -> None:
    ledger, model = Ledger(), dict[str, tuple[Hold, ...]]()
    for owner, wanted in history:
        taken = tuple(hold(device, owner, share, admin) for device, share, admin in wanted)
        others = [each for other, held in model.items() if other != owner for each in held]
        free = not any(excludes(each, other) for each in taken for other in others)
        if free:
            ledger.take(owner, taken)
            model[owner] = taken
        else:
            with pytest.raises(HeldError):
                ledger.take(owner, taken)
        assert {owner: held for owner, held in model.items() if held} == {
            owner: ledger.of(owner) for owner in ("uid-1", "uid-2", "uid-3") if ledger.of(owner)
        }
        assert not any(excludes(one, other) for one in ledger.all for other in ledger.all)


_several = st.lists(
    st.builds(
        lambda device, owner, share, admin: hold(device, owner or f"plugin/{device}", share, admin),
        st.sampled_from(["gpu-0", "gpu-0", "gpu-1", "mig-0-a"]),
        st.sampled_from(["", "", "uid-1"]),
        st.sampled_from(["", "", "", "s1"]),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=2,
    max_size=3,
    unique_by=lambda each: (each.device, each.owner, each.share),
)


@given(st.lists(_several, max_size=5))
def test_of_several_owners_all_take_or_none_by_the_rule_of_pairs(calls: list[list[Hold]]) -> None:
    ledger = Ledger()
    for wanted in calls:
        before, owners = ledger.all, {each.owner for each in wanted}
        others = [each for each in before if each.owner not in owners]
        pairs = [(one, other) for one in wanted for other in (*wanted, *others) if one is not other]
        allowed = not any(excludes(one, other) for one, other in pairs)
        try:
            ledger.take_each(wanted)
        except HeldError:
            assert not allowed
            assert ledger.all == before
        else:
            assert allowed
            # In the order in which they came: those taken now are the last ones.
            assert ledger.all[: len(others)] == tuple(others)
            assert set(ledger.all[len(others) :]) == set(wanted)
    for owner in ledger.owners:
        ledger.release(owner)
    for device in _WHOLES:
        ledger.take("last", [hold(device, "last")])


def test_a_device_taken_again_is_not_given_back() -> None:
    ledger, told = Ledger(), list[object]()
    ledger.bus.subscribe(HoldsTaken, told.append)
    ledger.bus.subscribe(HoldsReleased, told.append)
    first, again = (replace(hold("gpu-0", "plugin/gpu-0"), since=since) for since in (1.0, 2.0))
    other = hold("gpu-1", "plugin/gpu-1")
    ledger.take_each([first, other])
    version = ledger.version
    ledger.take_each([again, other])
    assert ledger.all == (again, other)
    assert ledger.version > version
    assert told == [HoldsTaken((first, other)), HoldsTaken((again, other))]
    with pytest.raises(HeldError):
        ledger.take("uid-1", [hold("gpu-0")])
    ledger.release("plugin/gpu-0")
    ledger.take("uid-1", [hold("gpu-0")])


@given(st.lists(_wanted, max_size=4), st.lists(_wanted, max_size=4))
def test_releasing_brings_back_what_was_before(
    first: list[tuple[str, str, bool]], second: list[tuple[str, str, bool]]
) -> None:
    ledger = Ledger()
    ledger.restore("uid-1", [hold(device, "uid-1", share, admin) for device, share, admin in first])
    before, shown = ledger.all, ledger.by_device()
    ledger.restore("uid-2", [hold(device, "uid-2", share, admin) for device, share, admin in second])
    ledger.release("uid-2")
    assert ledger.all == before
    assert ledger.by_device() == shown
    ledger.release("uid-1")
    for device in _WHOLES:
        assert ledger.obstacle(hold(device, "uid-3")) is None


def test_an_owner_counts_as_a_claim_only_while_it_holds_something_through_the_dra_door() -> None:
    ledger = Ledger()
    ledger.take("uid-1", [hold("gpu-0")])
    assert ledger.has_claims(["gpu-1", "gpu-0"])
    assert not ledger.has_claims(["gpu-1"])
    ledger.take("uid-1", [hold("gpu-0", door=Door.PLUGIN)])
    assert not ledger.has_claims(["gpu-0"])
    ledger.take("uid-1", [hold("gpu-0")])
    ledger.release("uid-1")
    ledger.take("uid-2", [hold("gpu-0", "uid-2", door=Door.PLUGIN)])
    assert not ledger.has_claims(["gpu-0"])


def test_taking_the_same_devices_again_ends_nothing_and_renews_the_holds() -> None:
    ledger = Ledger()
    first = [hold(device, f"plugin/{device}", door=Door.PLUGIN) for device in ("gpu-0", "gpu-1")]
    ledger.take_each(first)
    version, told = ledger.version, list[object]()
    ledger.bus.subscribe(HoldsTaken, told.append)
    ledger.bus.subscribe(HoldsReleased, told.append)
    again = tuple(replace(each, holder="default/later", since=2.0) for each in first)
    ledger.take_each(again)
    assert ledger.all == again
    assert told == [HoldsTaken(again)]
    assert ledger.version > version
    with pytest.raises(HeldError, match="default/later"):
        ledger.take("uid-2", [hold("mig-0-a", "uid-2")])


def test_owners_are_in_the_order_of_their_last_taking() -> None:
    ledger = Ledger()
    zero, one = (hold(device, f"plugin/{device}", door=Door.PLUGIN) for device in ("gpu-0", "gpu-1"))
    ledger.take_each([zero, one])
    ledger.take_each([one, zero])
    assert ledger.owners == (one.owner, zero.owner)


_earlier = st.builds(
    hold, st.sampled_from(["gpu-0", "mig-0-a"]), share=st.sampled_from(["", "s1"]), admin=st.booleans(),
    door=st.sampled_from(list(Door)),
)  # fmt: skip


@given(_earlier, st.sampled_from(list(Door)), st.sampled_from([*HoldState]))
def test_taking_several_devices_reports_of_each_owner_what_taking_its_device_alone_reports(
    earlier: Hold, door: Door, state: HoldState
) -> None:
    wanted, other = hold("gpu-0", door=door), hold("gpu-1", "uid-2")
    alone, beside = _told(replace(earlier, state=state), wanted), _told(replace(earlier, state=state), wanted, other)
    assert [each for each in alone if isinstance(each, HoldsReleased)] == [
        each for each in beside if isinstance(each, HoldsReleased)
    ]
    assert (HoldsTaken((wanted,)) in alone, HoldsTaken((wanted, other)) in beside) == (True, True)


def _told(earlier: Hold, *wanted: Hold) -> list[object]:
    """The events of taking these in one step in place of an owner's earlier hold."""
    ledger, told = Ledger(), list[object]()
    ledger.take(earlier.owner, [earlier])
    ledger.bus.subscribe(HoldsTaken, told.append)
    ledger.bus.subscribe(HoldsReleased, told.append)
    ledger.take_each(wanted)
    return told


def test_a_whole_device_in_place_of_admin_access_ends_that_access_also_beside_other_devices() -> None:
    earlier = hold("gpu-0", admin=True)
    assert HoldsReleased((earlier,)) in _told(earlier, hold("gpu-0"), hold("gpu-1", "uid-2"))
