"""Which rules may have which doors, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.devices.partitions import Partitioned
from driver.devices.view import door_offer
from driver.door.registration import DoorOptions, claim_socket, registration_socket, unique
from node.edits.options import CdiMode, EditOptions, ListStrategy
from node.eligibility import offer
from node.inventory.model import Host, Snapshot
from node.ledger.offer_context import NOTHING_HELD
from node.rules import Door, Doors
from ostler.config.errors import ConfigErrors
from ostler.config.load import Loaded, load_bytes
from tests.making.devices import gpu

HEADER = "apiVersion: ostler.dev/v1alpha1\nkind: Config\nnodeName: a\nresources:\n"
BOTH_NEEDS = (
    "f:4: resources: door both needs an API server that keeps device taints and the kubelet's pod resources; if one "
    "is missing, devices are offered only through the plugin door, and 'ostler status' says why"
)


def read(body: str, header: str = HEADER) -> Loaded:
    try:
        return load_bytes("f", (header + body).encode(), {}, {})
    except ConfigErrors as errors:
        raise AssertionError(str(errors)) from errors


@pytest.mark.parametrize(
    "pair",
    [
        ("{kind: gpu}", "{kind: nic}"),
        ("{product: '*H100*'}", "{kind: gpu}"),
        ("{functions: vf, drivers: mlx5_core}", "{functions: vf, drivers: vfio-pci}"),
        ("{migEnabled: true}", "{migEnabled: false}"),
        ("{kind: gpu}", "{kind: mig}"),
        ("{kind: gpu, vendor: amd}", "{kind: partition}"),
        ("{functions: pf}", "{functions: vf}"),
        ("{rdma: true, functions: vf}", "{rdma: false, functions: vf}"),
        ("{uuid: GPU-1f5e2f0b-7c4d-4c6e-9d35-4b1a0f5d1c2e}", "{kind: gpu}"),
    ],
)
def test_rules_of_different_doors_may_be_about_the_same_devices_and_their_parts(pair: tuple[str, str]) -> None:
    one, other = pair
    body = f"- {{name: a/b, devices: {one}}}\n- {{name: a/c, door: dra, devices: {other}}}\n"
    assert [rule.door for rule in read(body).settings.rules] == [Doors.PLUGIN, Doors.DRA]


def test_a_rule_for_both_doors_keeps_the_plugin_doors_options_and_gives_claims_by_cdi() -> None:
    (rule,) = read("- {name: a/b, door: both, devices: {kind: gpu}, deviceListStrategy: [envvar]}\n").settings.rules
    assert rule.door is Doors.BOTH
    assert rule.edits == EditOptions((ListStrategy.ENVVAR,))
    snapshot = Snapshot(1, (gpu(0),), (), Host())
    (plugin,) = offer(snapshot, (rule,), NOTHING_HELD, Door.PLUGIN).resources
    (claims,) = door_offer(Partitioned(snapshot), (rule,)).resources
    assert plugin.rule.edits.strategies == (ListStrategy.ENVVAR,)
    assert claims.rule.edits.strategies == (ListStrategy.CDI_CRI,)
    assert [item.device.name for item in plugin.devices] == [item.device.name for item in claims.devices]


@pytest.mark.parametrize("mode", ["full, hook: /usr/bin/nvidia-cdi-hook", "delegate"])
@pytest.mark.parametrize("door", ["dra", "both"])
def test_a_cdi_mode_needs_no_list_strategy_where_claims_are_served(door: str, mode: str) -> None:
    body = f"- {{name: a/b, door: {door}, devices: {{kind: gpu, vendor: nvidia}}, cdiMode: {mode}}}\n"
    settings = read(body).settings
    assert settings.rules[0].edits.cdi_mode is CdiMode(mode.partition(",")[0])
    assert settings.nvidia.full is mode.startswith("full")


def test_options_of_the_plugin_door_are_for_rules_of_both_as_well() -> None:
    body = (
        "- {name: a/b, door: both, devices: {kind: gpu}, ids: name, uniform: true, passDeviceSpecs: false, "
        "topologyHints: false, cdiAnnotationPrefix: example.com/}\n"
    )
    (rule,) = read(body).settings.rules
    assert (rule.hints, rule.uniform, rule.edits.device_specs) == (False, True, False)


def test_what_door_both_needs_is_noted() -> None:
    body = "- {name: a/b, door: both, devices: {kind: gpu}}\n"
    assert [str(note) for note in read(body).notes] == [BOTH_NEEDS]
    nameless = [str(note) for note in read(body, HEADER.replace("nodeName: a\n", "")).notes]
    assert nameless == [
        "f:1: nodeName: is not set, but 'ostler run' needs it, because a resource has door both",
        BOTH_NEEDS.replace("f:4:", "f:3:"),
    ]


def test_doors_by_node_need_the_nodes_name_whatever_the_rules_say() -> None:
    header = HEADER.replace("nodeName: a\n", "kubernetes: {doorByNode: on}\n")
    loaded = read("- {name: a/b, devices: {kind: gpu}}\n", header)
    assert loaded.settings.kubernetes.door_by_node
    assert [str(note) for note in loaded.notes] == [
        "f:1: nodeName: is not set, but 'ostler run' needs it, because kubernetes.doorByNode is on"
    ]
    assert not read("- {name: a/b, devices: {kind: gpu}}\n").settings.kubernetes.door_by_node


def test_one_name_at_two_doors_is_let_pass_with_the_same_options_and_told_of() -> None:
    body = "- {name: a/b, devices: {product: L4}}\n- {name: a/b, door: dra, devices: {kind: gpu}}\n"
    loaded = read(body)
    assert [str(note) for note in loaded.notes] == [
        (
            'f:6: resources[1].name: is "a/b", which resources[0] (line 5) offers through the other door: pods that '
            "ask for it by name get devices of door plugin alone as long as the node has any"
        )
    ]
    body = body.replace("door: dra", "door: both")
    assert [str(note) for note in read(body).notes] == [BOTH_NEEDS]


def test_driver_files_are_listed_where_a_node_may_be_moved_to_the_dra_door_by_its_label() -> None:
    rule = "- {name: a/b, devices: {kind: gpu, vendor: nvidia}}\n"
    defaults = "defaults: {cdiMode: full, hook: /usr/bin/nvidia-cdi-hook, deviceListStrategy: [cdi-cri]}\n"
    assert read(rule, defaults + HEADER).settings.nvidia.full


@pytest.mark.parametrize(
    ("section", "key", "longest"),
    [("dra", "pluginsDirectory", 107 - len("/ostler.dev/dra-01234567.sock")), ("kubelet", "pluginsRegistryDir", 72)],
)
def test_folders_are_refused_where_the_drivers_sockets_do_not_fit_by_a_byte(
    section: str, key: str, longest: int
) -> None:
    def load(size: int) -> None:
        folder = "/" + "f" * (size - 1)
        more = "dra: {pluginsDirectory: /p}\n" if section == "kubelet" else ""
        body = f"{more}{section}: {{{key}: {folder}}}\nresources:\n- {{name: a/b, door: dra}}\n"
        load_bytes("f", (HEADER.replace("resources:\n", "") + body).encode(), {}, {})

    load(longest)
    with pytest.raises(ConfigErrors, match=f"{section}.{key}: .* too long for the path of"):
        load(longest + 1)


def test_the_drivers_sockets_are_as_long_as_is_reckoned_with() -> None:
    options = DoorOptions("d" * 40, "a", Path("/p"), Path("/" + "r" * 71))
    name = registration_socket(options, unique())
    assert len(str(options.registry_dir / name)) == 107
    assert len(claim_socket(unique())) == len("dra-01234567.sock")


def test_one_resource_may_come_from_several_rules_of_the_dra_door() -> None:
    body = "- {name: a/b, door: dra, devices: {uuid: GPU-1*}}\n- {name: a/b, door: dra, devices: {kind: gpu}}\n"
    assert len(load_bytes("f", (HEADER + body).encode(), {}, {}).settings.rules) == 2
