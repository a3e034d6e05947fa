"""Who had a device and is not proved to be gone: what keeps it from others, and for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.ledger.holds import Hold, HoldState, conflict
from node.ledger.tenants import WAIT, Tenancy, Tenants
from node.rules import Door
from node.values import replace


def by_plugin(device: str, *pods: str, within: tuple[str, ...] = (), holder: str = "team/a") -> Hold:
    state = HoldState.LISTED
    return Hold(device, Door.PLUGIN, holder, 0.0, owner=f"plugin/{device}", within=within, state=state, pods=pods)


def by_claim(device: str, *pods: str, admin: bool = False) -> Hold:
    return Hold(device, Door.DRA, "team/claim", 0.0, owner="claim", admin=admin, pods=pods)


def after(*holds: Hold, then: tuple[Hold, ...] = (), now: float = 100.0) -> Tenants:
    """Who had devices at first, and the same after other holds are had."""
    made = Tenants()
    made.update(holds, now - 10, 0.0, is_complete=True)
    made.update(then, now, 1.0, is_complete=True)
    return made


def test_a_device_is_pending_from_the_end_of_its_hold_until_its_pod_is_proved_to_be_gone() -> None:
    tenants = after(by_plugin("gpu-0", "uid-a"))
    assert tenants.waited_for == {"uid-a"}
    hold = tenants.wanted(100.0)["gpu-0"]
    assert (hold.door, hold.state) == (Door.PLUGIN, HoldState.PENDING_RELEASE)
    assert hold.words == (
        "pending release: containers of pod team/a (UID uid-a) still run, though their pod was deleted"
    )
    assert tenants.gone({"uid-a"})
    assert not tenants.wanted(100.0)
    assert not tenants.suspects("gpu-0", ())


def test_after_the_longest_wait_the_plugin_door_does_not_show_it_either() -> None:
    tenants = after(by_plugin("gpu-0", "uid-a"))
    assert tenants.wanted(100.0 + WAIT - 0.01)["gpu-0"].door is Door.PLUGIN
    assert tenants.wanted(100.0 + WAIT)["gpu-0"].door is None


def test_a_device_that_a_claim_had_is_shown_at_no_door_meanwhile() -> None:
    hold = after(by_claim("gpu-0", "uid-a")).wanted(100.0)["gpu-0"]
    assert hold.door is None
    assert "a pod of claim team/claim (UID uid-a)" in hold.words


def test_a_device_that_somebody_has_by_the_books_is_not_pending_whoever_had_it_before() -> None:
    tenants = after(by_plugin("gpu-0", "uid-a"), then=(by_plugin("gpu-0", "uid-b"),))
    assert not tenants.wanted(100.0)
    assert tenants.suspects("gpu-0", ()) == {"uid-a", "uid-b"}
    assert tenants.waited_for == {"uid-a"}


def test_who_only_looks_on_keeps_nothing() -> None:
    assert not after(by_claim("gpu-0", "uid-a", admin=True)).wanted(100.0)


def test_before_everything_is_known_nobody_is_waited_for_but_everybody_suspected() -> None:
    tenants = Tenants([Tenancy("gpu-0", "uid-a")])
    tenants.update((), 100.0, 0.0, is_complete=False)
    assert not tenants.waited_for
    assert tenants.suspects("gpu-0", ()) == {"uid-a"}
    tenants.update((), 101.0, 0.0, is_complete=True)
    assert tenants.waited_for == {"uid-a"}


def test_parts_wait_for_who_had_the_whole_and_the_whole_for_who_had_a_part_and_siblings_do_not() -> None:
    tenants = after(by_plugin("mig-1", "uid-a", within=("gpu-0",)), by_plugin("gpu-7", "uid-b"))
    assert tenants.suspects("gpu-0", ()) == {"uid-a"}
    assert not tenants.suspects("mig-2", ("gpu-0",))
    assert tenants.suspects("mig-9", ("gpu-7",)) == {"uid-b"}
    found = tenants.pending("mig-9", ("gpu-7",))
    assert found is not None
    assert found.device == "gpu-7"


def test_what_was_proved_stays_proved_while_an_old_file_still_names_the_pod() -> None:
    tenants = after(by_plugin("gpu-0", "uid-a"))
    tenants.gone({"uid-a"})
    tenants.note([Tenancy("gpu-0", "uid-a")])
    tenants.forget_proofs({"uid-a"})
    tenants.update((), 101.0, 0.0, is_complete=True)
    assert not tenants.suspects("gpu-0", ())


def test_a_static_pod_that_comes_back_with_its_uid_has_the_device_again() -> None:
    tenants = after(by_plugin("gpu-0", "uid-a"))
    tenants.gone({"uid-a"})
    tenants.update((by_plugin("gpu-0", "uid-a"),), 101.0, 0.0, is_complete=True)
    assert tenants.suspects("gpu-0", ()) == {"uid-a"}


def test_a_person_can_say_that_a_device_is_free_and_is_believed_for_that_device() -> None:
    tenants = after(by_plugin("gpu-0", "uid-a"))
    assert tenants.named("gpu-0") == "pod team/a (UID uid-a)"
    assert not tenants.release("gpu-1")
    assert tenants.release("gpu-0")
    assert not tenants.wanted(100.0)


def test_all_that_wait_for_one_pod_wait_no_longer_than_one_does() -> None:
    tenants = after(by_plugin("gpu-0", "uid-a"), by_plugin("gpu-1", "uid-a"), now=50.0)
    assert tenants.wait_until({"uid-a"}, 53.0, 0.0) == 53.0 + WAIT
    assert tenants.wait_until({"uid-a"}, 55.0, 0.0) == 53.0 + WAIT
    assert tenants.wait_until(set(), 53.0, 0.0) == 53.0


def test_nobody_waits_for_a_device_that_the_plugin_door_has_ceased_to_show() -> None:
    tenants = after(by_plugin("gpu-0", "uid-a"), now=50.0)
    assert tenants.wait_until({"uid-a"}, 50.0 + WAIT, 0.0) == 50.0 + WAIT


def test_the_plugin_door_shows_a_device_as_long_as_an_allocate_waits_for_it() -> None:
    tenants = after(by_plugin("gpu-0", "uid-a"), now=50.0)
    until = tenants.wait_until({"uid-a"}, 53.0, 0.0)
    assert tenants.wanted(until - 0.01)["gpu-0"].door is Door.PLUGIN
    assert tenants.wanted(until)["gpu-0"].door is None


def test_only_some_of_many_pods_are_named() -> None:
    words = after(by_plugin("gpu-0", "uid-a", "uid-b", "uid-c", holder="team/a, team/b")).wanted(100.0)["gpu-0"].words
    assert "the pod with UID uid-a, the pod with UID uid-b and 1 more still run" in words


DEVICES = st.sampled_from(["gpu-0", "gpu-1", "mig-0"])
UIDS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.tuples(st.just("had"), st.lists(st.tuples(DEVICES, UIDS), max_size=3))
    | st.tuples(st.just("gone"), st.lists(UIDS, max_size=2)),
    max_size=12,
)


@given(STEPS)
def test_whoever_had_a_device_and_is_not_proved_to_be_gone_is_suspected(steps: list[tuple[str, list[object]]]) -> None:
    tenants, had = Tenants(), set[tuple[object, object]]()
    for number, (what, those) in enumerate(steps):
        if what == "had":
            pairs = {(str(device), str(uid)) for device, uid in those}  # type: ignore[misc,has-type]
            had |= pairs
            within = ("gpu-0",)
            holds = [by_plugin(d, u, within=within if d == "mig-0" else ()) for d, u in sorted(pairs)]
            tenants.update(holds, float(number), 0.0, is_complete=True)
        else:
            tenants.gone({str(uid) for uid in those})
            had = {pair for pair in had if pair[1] not in those}
        for device, uid in had:
            assert uid in tenants.suspects(str(device), ())
        assert {(each.device, each.uid) for each in tenants.all} == had
        again = Tenants(tenants.all)
        assert again.suspects("gpu-0", ()) == tenants.suspects("gpu-0", ()), "what is written down says the same"


def test_a_partition_that_waits_for_its_pod_keeps_others_from_its_memory_slices() -> None:
    had = Hold("mig-0", Door.DRA, "team/claim", 0.0, owner="claim", within=("gpu-0",), pods=("uid-a",), slices=(0, 2))
    pending = after(had).wanted(100.0)["mig-0"]
    assert pending.slices == (0, 2)
    for slices, is_kept in (((1, 1), True), ((0, 4), True), ((2, 2), False)):
        wanted = Hold("mig-9", Door.DRA, "team/other", 0.0, owner="other", within=("gpu-0",), slices=slices)
        assert (conflict(wanted, [pending]) is not None) is is_kept
    error = conflict(replace(had, device="mig-9", owner="other", slices=(1, 1)), [pending])
    assert str(error) == (
        "device mig-9 takes the same slices of gpu-0 as mig-0, which is pending release: containers of a pod of claim "
        "team/claim (UID uid-a) still run, though their pod was deleted"
    )


def test_a_later_word_without_slices_leaves_them_as_they_are_known() -> None:
    tenants = Tenants([Tenancy("mig-0", "uid-a", ("gpu-0",), pod="team/a", slices=(4, 2))])
    tenants.note([Tenancy("mig-0", "uid-a", ("gpu-0",))])
    assert [each.slices for each in tenants.all] == [(4, 2)]
