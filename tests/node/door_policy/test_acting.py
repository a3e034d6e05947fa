"""The rules as they act: by configuration, node and server, with the reason in words."""

from __future__ import annotations

from node.door_policy import NodeDoors, Taints, TaintSupport, effective
from node.rules import Doors, Rule

KEPT = TaintSupport(Taints.KEPT, "kept", "v1")
DROPPED = TaintSupport(Taints.DROPPED, "the API server (v1.34.0) drops device taints", "v1.34.0")
GPU, NIC, MIG = (
    Rule("nvidia.com/gpu"),
    Rule("intel.com/sriov", door=Doors.DRA),
    Rule("nvidia.com/mig-{profile}", door=Doors.BOTH),
)
RULES = (GPU, NIC, MIG)


def doors(choice: NodeDoors, support: TaintSupport = KEPT) -> list[str]:
    return [rule.door.value for rule in effective(RULES, choice, support).rules]


def test_without_words_on_the_node_the_configuration_counts() -> None:
    acting = effective(RULES, NodeDoors(), KEPT)
    assert acting.rules == RULES
    assert all(acting.rules[n] is RULES[n] for n in range(3))
    assert acting.reasons == acting.problems == acting.held_back == ()


def test_the_label_is_for_every_rule_and_the_annotation_wins() -> None:
    assert doors(NodeDoors(Doors.DRA)) == ["dra", "dra", "dra"]
    acting = effective(RULES, NodeDoors(Doors.DRA, (("intel.com/sriov", Doors.PLUGIN),)), KEPT)
    assert [rule.door.value for rule in acting.rules] == ["dra", "plugin", "dra"]
    assert acting.reasons == (
        "nvidia.com/gpu has door dra by the label ostler.dev/door; the configuration says plugin",
        "intel.com/sriov has door plugin by the annotation ostler.dev/doors; the configuration says dra",
        "nvidia.com/mig-{profile} has door dra by the label ostler.dev/door; the configuration says both",
    )


def test_both_acts_as_plugin_where_the_server_does_not_keep_taints_or_nobody_knows() -> None:
    acting = effective(RULES, NodeDoors(), DROPPED)
    assert [rule.door.value for rule in acting.rules] == ["plugin", "dra", "plugin"]
    assert [each.resource for each in acting.held_back] == ["nvidia.com/mig-{profile}"]
    assert acting.reasons == (
        (
            "nvidia.com/mig-{profile} is offered through the plugin door alone, though the configuration says both: "
            "the API server (v1.34.0) drops device taints"
        ),
    )
    assert doors(NodeDoors(Doors.BOTH), TaintSupport()) == ["plugin", "plugin", "plugin"]
    assert effective(RULES, NodeDoors(Doors.BOTH), TaintSupport()).reasons[0] == (
        "nvidia.com/gpu is offered through the plugin door alone, though the label ostler.dev/door says both: "
        "the API server has not been asked yet whether it keeps device taints"
    )


def test_only_the_door_of_a_rule_changes() -> None:
    rule = Rule("a.b/c", uniform=True, hints=False)
    (acting,) = effective((rule,), NodeDoors(Doors.DRA), KEPT).rules
    assert (acting.resource, acting.uniform, acting.hints, acting.door) == ("a.b/c", True, False, Doors.DRA)


def test_entries_that_fit_no_rule_are_told() -> None:
    choice = NodeDoors(None, (("nvidia.com/mig-1g.5gb", Doors.DRA), ("a.b/none", Doors.DRA)))
    acting = effective(RULES, choice, KEPT)
    assert acting.rules == RULES
    assert acting.problems == (
        (
            "annotation ostler.dev/doors: no rule offers nvidia.com/mig-1g.5gb; a rule has one door for all profiles; "
            "write nvidia.com/mig-{profile}=dra (the entry is ignored)"
        ),
        (
            "annotation ostler.dev/doors: no rule offers a.b/none; use one of intel.com/sriov, nvidia.com/gpu, "
            "nvidia.com/mig-{profile} (the entry is ignored)"
        ),
    )
    assert "there are no rules" in effective((), choice, KEPT).problems[0]
