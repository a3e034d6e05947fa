"""What a reload says of resources that change doors."""

from __future__ import annotations

from pathlib import Path

from node.edits.options import EditOptions
from node.rules import Doors, Rule, Selector
from ostler.config.load import load_bytes
from ostler.config.settings import (
    HoldsSettings,
    KubernetesSettings,
    NvidiaSettings,
    Settings,
    changes,
    kept,
    rules_in_force,
)

GPU, NIC = "nvidia.com/gpu", "example.com/nic"


def of(*doors: tuple[str, Doors]) -> Settings:
    return Settings(rules=tuple(Rule(name, Selector(uuids=(f"u{n}",)), door) for n, (name, door) in enumerate(doors)))


def test_a_resource_at_other_doors_is_named_with_what_happens_to_its_devices() -> None:
    found = changes(of((GPU, Doors.PLUGIN), (NIC, Doors.DRA)), of((GPU, Doors.BOTH), (NIC, Doors.DRA)))
    assert found == (
        "rules: 2 before, 2 now, in force",
        "nvidia.com/gpu: door plugin before, both now; a device that is in use moves when it is free",
    )


def test_a_name_of_several_rules_is_told_of_by_all_its_doors() -> None:
    before = of((GPU, Doors.PLUGIN), (GPU, Doors.DRA))
    (_, told) = changes(before, of((GPU, Doors.DRA)))
    assert told.startswith("nvidia.com/gpu: door dra and plugin before, dra now; ")


def test_a_resource_that_comes_or_goes_changes_no_door() -> None:
    assert changes(of((GPU, Doors.PLUGIN)), of((NIC, Doors.DRA))) == ("rules: 1 before, 1 now, in force",)


def test_what_is_asked_of_the_node_and_of_processes_needs_a_restart() -> None:
    new = Settings(kubernetes=KubernetesSettings(kubeconfig=Path("/a"), door_by_node=True), holds=HoldsSettings(("a",)))
    assert kept(Settings(), new) == ("kubernetes", "holds")


def test_the_effect_of_taints_is_in_force_with_a_reload() -> None:
    old, new = (
        load_bytes("f", None, {"--dra-taint-effect": effect}, {}).settings for effect in ("NoSchedule", "NoExecute")
    )
    assert changes(old, new) == ("health: the new configuration is in force",)


def test_containers_look_for_mps_where_its_daemons_run_until_a_restart() -> None:
    def shared(root: str) -> Settings:
        rules = (Rule(GPU, edits=EditOptions(mps=(root, GPU))), Rule(NIC))
        return Settings(rules=rules, nvidia=NvidiaSettings(mps_root=root))

    assert rules_in_force(shared("/old"), shared("/new")) == shared("/old").rules
    assert kept(shared("/old"), shared("/new")) == ("nvidia",)
