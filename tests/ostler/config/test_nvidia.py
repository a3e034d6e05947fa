"""Configurations of NVIDIA's device plugin give the same rules here, with an account of every value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from node.edits.options import CdiMode, EditOptions, IdStrategy, ListStrategy
from node.inventory.model import DeviceKind
from node.rules import Rule, Selector
from ostler.config.errors import NoteKind
from ostler.config.load import Loaded, SourceFormat, load, load_bytes
from tests.ostler.config.samples import FOLDER, GOOD_NVIDIA

GPU, MIG = DeviceKind.GPU, DeviceKind.MIG
PLAIN = Selector((GPU,), ("nvidia",), mig_enabled=False)


def sample(name: str) -> Loaded:
    return load(FOLDER / "good-nvidia" / name, {}, {})


def text(body: str, flags: dict[str, str] | None = None) -> Loaded:
    return load_bytes("nvidia.yaml", f"version: v1\n{body}".encode(), flags or {}, {})


def notes(loaded: Loaded, kind: NoteKind) -> list[str]:
    return [f"{note.origin.key}: {note.text}" for note in loaded.notes if note.kind is kind]


@pytest.mark.parametrize("path", GOOD_NVIDIA, ids=lambda path: path.stem)
def test_sample_is_recognised_by_its_version(path: Path) -> None:
    assert load(path, {}, {}).source_format is SourceFormat.NVIDIA


def test_the_documented_file_offers_whole_gpus() -> None:
    loaded = sample("documented.yaml")
    options = EditOptions(device_specs=False)
    assert loaded.settings.rules == (Rule("nvidia.com/gpu", Selector((GPU,), ("nvidia",)), edits=options),)
    assert notes(loaded, NoteKind.TAKEN) == [
        "flags.migStrategy: taken as nvidia.migStrategy",
        "flags.nvidiaDriverRoot: taken as nvidia.driverRoot",
        "flags.plugin.passDeviceSpecs: taken as defaults.passDeviceSpecs",
        "flags.plugin.deviceListStrategy: taken as defaults.deviceListStrategy",
        "flags.plugin.deviceIDStrategy: taken as defaults.deviceIDStrategy",
    ]
    assert notes(loaded, NoteKind.IGNORED) == [
        "flags.failOnInitError: is ignored: the agent waits for a missing driver and reports it"
    ]


def test_the_documented_file_for_mixed_offers_profiles() -> None:
    rules = sample("documented-mixed.yaml").settings.rules
    assert [rule.resource for rule in rules] == ["nvidia.com/gpu", "nvidia.com/mig-{profile}"]
    assert rules[0].selector == PLAIN
    assert rules[1].selector == Selector((MIG,), ("nvidia",), whole_instances=True)


def test_every_value_is_taken_or_accounted_for() -> None:
    loaded = sample("everything.yaml")
    options = EditOptions(
        strategies=(ListStrategy.CDI_ANNOTATIONS, ListStrategy.CDI_CRI),
        ids=IdStrategy.INDEX,
        cdi_mode=CdiMode.FULL,
        driver_root="/run/nvidia/driver",
        hook="/usr/local/nvidia/toolkit/nvidia-ctk",
        features=("gdrcopy", "gds"),
        imex_channels=(0,),
    )
    assert loaded.settings.rules == (
        Rule("nvidia.com/gpu", PLAIN, edits=options, uniform=True),
        Rule("nvidia.com/gpu", Selector((MIG,), ("nvidia",)), edits=options, uniform=True),
    )
    assert loaded.settings.nvidia.driver_root_mount == Path("/driver-root")
    assert loaded.settings.nvidia.dev_root == "/"
    assert loaded.settings.nvidia.full
    assert loaded.settings.nvidia.mps_root == "/run/nvidia/mps"
    assert notes(loaded, NoteKind.IGNORED) == [
        "flags.failOnInitError: is ignored: the agent waits for a missing driver and reports it",
        "flags.useNodeFeatureAPI: is ignored: ostler creates no node labels",
        "flags.deviceDiscoveryStrategy: is ignored: ostler always finds devices through NVML",
        "flags.plugin.sharedDevicesAllocationPolicy: is ignored: nothing is shared",
        "flags.gfd: is ignored: ostler creates no node labels",
    ]


def test_cdi_strategies_write_full_specs_as_there() -> None:
    loaded = sample("cdi.yaml")
    (rule,) = loaded.settings.rules
    assert (rule.edits.cdi_mode, rule.edits.hook) == (CdiMode.FULL, "/usr/bin/nvidia-ctk")
    assert notes(loaded, NoteKind.TAKEN)[-1] == (
        "flags.plugin.deviceListStrategy: CDI as in NVIDIA's plugin: taken as defaults.cdiMode full with the hook "
        "/usr/bin/nvidia-ctk"
    )


def test_renamed_resources_stand_before_the_default_ones() -> None:
    rules = sample("renamed.yaml").settings.rules
    assert [(rule.resource, rule.selector.products or rule.selector.profiles) for rule in rules] == [
        ("nvidia.com/a100", ("A100-SXM4-40GB",)),
        ("nvidia.com/l4", ("*L4*",)),
        ("nvidia.com/mig-small", ("1g.5gb",)),
        ("nvidia.com/gpu", ()),
        ("nvidia.com/mig-{profile}", ()),
    ]
    assert all(rule.selector.mig_enabled is False for rule in rules if rule.selector.kinds == (GPU,))


def test_renamed_profiles_have_no_meaning_without_a_strategy() -> None:
    loaded = text("resources: {mig: [{pattern: '*', name: small}]}\n")
    assert [rule.resource for rule in loaded.settings.rules] == ["nvidia.com/gpu"]
    assert notes(loaded, NoteKind.IGNORED) == [
        "resources.mig[0]: is ignored: migStrategy none does not offer MIG devices"
    ]


def test_a_flag_is_over_the_file_and_renames_follow_it() -> None:
    loaded = text("resources: {mig: [{pattern: '*', name: small}]}\n", {"--mig-strategy": "mixed"})
    assert loaded.settings.rules[0].resource == "nvidia.com/small"


def test_a_flag_that_makes_the_cdi_mode_idle_is_no_error() -> None:
    flags = {"--device-list-strategy": "envvar"}
    loaded = text("flags: {plugin: {deviceListStrategy: cdi-cri}}\n", flags)
    assert loaded.settings.rules[0].edits.strategies == (ListStrategy.ENVVAR,)


def test_an_empty_sharing_section_is_fine() -> None:
    loaded = sample("empty-sharing.yaml")
    assert [rule.resource for rule in loaded.settings.rules] == ["nvidia.com/gpu"]
    assert notes(loaded, NoteKind.IGNORED) == [
        "sharing.timeSlicing.renameByDefault: is ignored: nothing is shared",
        "sharing.timeSlicing.resources: is ignored: nothing is shared",
    ]


def test_a_bare_version_gives_the_defaults_for_nvidias_devices() -> None:
    loaded = text("")
    defaults = load(None, {}, {}).settings
    assert loaded.settings == replace(defaults, rules=defaults.rules[:1])
    assert loaded.settings.rules[0].selector.vendors == ("nvidia",)
    assert loaded.notes == ()
