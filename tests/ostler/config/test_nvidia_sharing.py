"""The ``sharing`` section of NVIDIA's plugin, read as there, and what it does to the rules of the file's resources."""

from __future__ import annotations

import json

import pytest

from node.edits.options import EditOptions
from node.inventory.model import DeviceKind
from node.rules import Rule, Selector
from node.sharing import SharePreference, Sharing, SharingStrategy
from ostler.config.errors import ConfigErrors, NoteKind
from ostler.config.load import Loaded, load_bytes
from tests.ostler.config.test_nvidia import notes, sample, text

GPU, MIG = DeviceKind.GPU, DeviceKind.MIG
UUIDS = ("GPU-b1028956-cfa2-0990-bf4a-5da9abb51763", "GPU-b1028956-cfa2-0990-bf4a-5da9abb51764")


def shared(strategy: str, *items: dict[str, object], flags: str = "", **more: object) -> Loaded:
    section = {strategy: {"resources": list(items), **more}}
    return text(f"flags: {{{flags}}}\nsharing: {json.dumps(section)}\n")


def named(loaded: Loaded) -> list[tuple[str, Sharing | None]]:
    return [(rule.resource, rule.sharing) for rule in loaded.settings.rules]


def test_every_gpu_of_the_resource_is_shared_and_keeps_its_name() -> None:
    assert named(shared("timeSlicing", {"name": "nvidia.com/gpu", "replicas": 10})) == [
        ("nvidia.com/gpu", Sharing(replicas=10))
    ]


def test_mps_refuses_requests_for_more_than_one_unless_told_otherwise() -> None:
    item: dict[str, object] = {"name": "nvidia.com/gpu", "replicas": 10}
    assert named(shared("mps", item)) == [("nvidia.com/gpu", Sharing(SharingStrategy.MPS, 10, fail_multiple=True))]
    assert named(shared("mps", item, failRequestsGreaterThanOne=False)) == [
        ("nvidia.com/gpu", Sharing(SharingStrategy.MPS, 10))
    ]


def test_profiles_of_the_strategy_mixed_are_shared_one_by_one() -> None:
    def sharing(replicas: int) -> Sharing:
        return Sharing(replicas=replicas, fail_multiple=True, preference=SharePreference.PACKED)

    loaded = sample("shared-mixed.yaml")
    assert named(loaded) == [
        ("nvidia.com/gpu.shared", sharing(10)),
        ("nvidia.com/mig-1g.10gb.me.shared", sharing(2)),
        ("nvidia.com/half", sharing(4)),
        ("nvidia.com/mig-{profile}", None),
    ]
    assert loaded.settings.rules[1].selector == Selector(
        (MIG,), ("nvidia",), profiles=("1g.10gb+me",), whole_instances=True
    )
    assert notes(loaded, NoteKind.TAKEN)[-4:] == [
        "sharing.timeSlicing.failRequestsGreaterThanOne: taken as sharing.failRequestsGreaterThanOne true",
        (
            "sharing.timeSlicing.resources[0]: taken as sharing of nvidia.com/gpu: timeSlicing, 10 replicas, "
            "offered as nvidia.com/gpu.shared"
        ),
        (
            "sharing.timeSlicing.resources[1]: taken as sharing of nvidia.com/mig-1g.10gb.me: timeSlicing, 2 replicas, "
            "offered as nvidia.com/mig-1g.10gb.me.shared"
        ),
        (
            "sharing.timeSlicing.resources[2]: taken as sharing of nvidia.com/mig-3g.40gb: timeSlicing, 4 replicas, "
            "offered as nvidia.com/half"
        ),
    ]


def test_a_shared_profile_that_keeps_its_name_stands_before_the_others() -> None:
    item: dict[str, object] = {"name": "mig-1g.10gb", "replicas": 3}
    assert named(shared("timeSlicing", item, flags="migStrategy: mixed")) == [
        ("nvidia.com/gpu", None),
        ("nvidia.com/mig-1g.10gb", Sharing(replicas=3)),
        ("nvidia.com/mig-{profile}", None),
    ]


def test_the_strategy_single_shares_gpus_and_mig_devices() -> None:
    item: dict[str, object] = {"name": "gpu", "replicas": 3}
    rules = shared("timeSlicing", item, flags="migStrategy: single").settings.rules
    assert [(rule.selector.kinds, rule.sharing) for rule in rules] == [
        ((GPU,), Sharing(replicas=3)),
        ((MIG,), Sharing(replicas=3)),
    ]


def test_listed_devices_alone_are_shared() -> None:
    loaded = sample("shared-mps.yaml")
    assert named(loaded) == [
        ("nvidia.com/gpu.small", Sharing(SharingStrategy.MPS, 8, fail_multiple=True)),
        (
            "nvidia.com/gpu",
            Sharing(SharingStrategy.MPS, 4, (("0", 4), ("1", 4), (UUIDS[0], 4), ("*", 1)), fail_multiple=True),
        ),
    ]
    assert loaded.settings.rules[0].selector.uuids == (UUIDS[1],)
    assert loaded.settings.nvidia.mps_root == "/run/mps"


def test_devices_of_two_items_have_each_their_own_number() -> None:
    items: list[dict[str, object]] = [
        {"name": "gpu", "replicas": 4, "devices": [0, UUIDS[0]]},
        {"name": "gpu", "replicas": 2, "devices": ["1"]},
    ]
    own = (("0", 4), (UUIDS[0], 4), ("1", 2), ("*", 1))
    assert named(shared("timeSlicing", *items)) == [("nvidia.com/gpu", Sharing(replicas=4, own_replicas=own))]


def test_a_number_of_devices_means_the_first_ones() -> None:
    item: dict[str, object] = {"name": "gpu", "replicas": 4, "devices": 2}
    assert named(shared("timeSlicing", item)) == [
        ("nvidia.com/gpu", Sharing(replicas=4, own_replicas=(("0", 4), ("1", 4), ("*", 1))))
    ]


def test_a_number_of_devices_is_refused_by_the_strategy_in_force() -> None:
    data = b"version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 4, devices: 2}]}}\n"
    with pytest.raises(ConfigErrors, match=r"resources\[0\]\.devices: is a number, but which of the devices"):
        load_bytes("nvidia.yaml", data, {"--mig-strategy": "mixed"}, {})


def test_names_of_the_resources_section_can_be_shared() -> None:
    renames = "resources: {gpus: [{pattern: '*L4*', name: l4}]}\n"
    loaded = text(f"{renames}sharing: {{timeSlicing: {{resources: [{{name: l4, replicas: 4}}]}}}}\n")
    assert named(loaded) == [("nvidia.com/l4", Sharing(replicas=4)), ("nvidia.com/gpu", None)]


def test_mps_leaves_mig_devices_of_the_strategy_single_out() -> None:
    loaded = sample("shared-mps-single.yaml")
    assert loaded.settings.rules == (
        Rule(
            "nvidia.com/gpu",
            Selector((GPU,), ("nvidia",), mig_enabled=False),
            edits=EditOptions(mps=("/run/nvidia/mps", "nvidia.com/gpu")),
            uniform=True,
            sharing=Sharing(SharingStrategy.MPS, 4, fail_multiple=True),
        ),
    )
    assert notes(loaded, NoteKind.REMARK) == [
        (
            "sharing.mps.resources[0]: shares whole GPUs only: MIG devices are not offered on a node that has any "
            "(there the plugin ends)"
        )
    ]


@pytest.mark.parametrize("strategy", ["none", "single"])
def test_a_profile_without_the_strategy_mixed_gets_no_device_as_there(strategy: str) -> None:
    item: dict[str, object] = {"name": "mig-1g.5gb", "replicas": 4}
    loaded = shared("timeSlicing", item, flags=f"migStrategy: {strategy}")
    assert all(rule.sharing is None for rule in loaded.settings.rules)
    assert notes(loaded, NoteKind.IDLE) == [
        (
            f"sharing.timeSlicing.resources[0]: never gets a device in the plugin either: migStrategy {strategy} "
            "offers no MIG profiles by name"
        )
    ]
