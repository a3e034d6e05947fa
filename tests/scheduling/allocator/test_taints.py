"""Taints and tolerations match as those of nodes and pods do."""

from __future__ import annotations

import pytest

from scheduling.allocator.claims import Toleration, prevents, tolerates, untolerated
from scheduling.allocator.slices import Taint

TAINT = Taint("example.com/maint", "soon", "NoSchedule")


@pytest.mark.parametrize(
    ("effect", "prevented"),
    [("NoSchedule", True), ("NoExecute", True), ("None", False), ("", False), ("PreferNoSchedule", False)],
)
def test_only_two_effects_keep_a_claim_away(effect: str, prevented: bool) -> None:
    assert prevents(Taint("key", "", effect)) is prevented


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("example.com/maint", "Equal", "soon", "NoSchedule"), True),
        (Toleration("example.com/maint", "", "soon", ""), True),
        (Toleration("", "Equal", "soon", ""), True),
        (Toleration("example.com/maint", "Equal", "later", ""), False),
        (Toleration("example.com/maint", "Equal", "", ""), False),
        (Toleration("example.com/maint", "Exists", "", ""), True),
        (Toleration("example.com/maint", "Exists", "later", ""), True),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("example.com/other", "Exists", "", ""), False),
        (Toleration("example.com/maint", "Exists", "", "NoExecute"), False),
        (Toleration("example.com/maint", "Foo", "soon", ""), False),
    ],
)
def test_toleration_matches_by_key_operator_value_and_effect(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates(toleration, TAINT) is tolerated


def test_every_preventing_taint_needs_a_toleration_of_its_own() -> None:
    other, harmless = Taint("other", "", "NoExecute"), Taint("note", "", "None")
    taints = (TAINT, other, harmless)
    one = Toleration("example.com/maint", "Exists", "", "")
    assert untolerated(taints, ()) == (TAINT, other)
    assert untolerated(taints, (one,)) == (other,)
    assert untolerated(taints, (one, Toleration("other", "Exists", "", ""))) == ()
