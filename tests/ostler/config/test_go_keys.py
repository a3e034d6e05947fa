"""Files that Go programs write and read: keys in any case, nulls, and two keys for one field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostler.config.conversion import convert
from ostler.config.errors import ConfigErrors, NoteKind
from ostler.config.foreign import fold
from ostler.config.load import Loaded, SourceFormat, load_bytes

OPERATORS = b"""{"resourceList":[{"resourceName":"vfs","selectors":{"vendors":["8086"],"pfNames":["ens1f0#0-3"],
"IsRdma":true,"NeedVhostNet":true},"SelectorObjs":null}]}"""


def read(text: str | bytes) -> Loaded:
    data = text.encode() if isinstance(text, str) else text
    loaded = load_bytes("file", data, {}, {})
    converted = load_bytes("config.yaml", convert("file", data).encode(), {}, {})
    assert converted.settings == loaded.settings
    return loaded


def notes(loaded: Loaded, kind: NoteKind) -> list[str]:
    return [str(note) for note in loaded.notes if note.kind is kind]


def strategy(text: str) -> tuple[bool, ...]:
    """Whether devices are named as the MIG strategy says, as far as rules tell."""
    return tuple(rule.uniform for rule in read(text).settings.rules)


def test_a_file_of_the_sriov_operator_is_read_as_the_plugin_reads_it() -> None:
    loaded = read(OPERATORS)
    (rule,) = loaded.settings.rules
    assert (rule.edits.rdma, rule.edits.vhost_net) == (True, True)
    assert "file:2: resourceList[0].selectors.IsRdma: taken as devices.rdma true" in notes(loaded, NoteKind.TAKEN)[3]
    assert notes(loaded, NoteKind.IGNORED) == [
        "file:2: resourceList[0].SelectorObjs: is ignored: the plugin derives it from the selectors"
    ]


def test_the_converted_file_names_keys_as_they_are_written() -> None:
    assert "# resourceList[0].selectors.IsRdma, line 2" in convert("file", OPERATORS)


@pytest.mark.parametrize("key", ["resourcelist", "RESOURCELIST", "re\u017fourceLi\u017ft"])
def test_the_list_is_known_in_any_case(key: str) -> None:
    loaded = read(f"{key}: [{{ResourceNAME: a, Selectors: {{PfNames: [ens1]}}}}]")
    assert loaded.source_format is SourceFormat.SRIOV
    assert loaded.settings.rules[0].resource == "intel.com/a"


@pytest.mark.parametrize(("first", "last", "on"), [("isRdma", "IsRdma", False), ("ISRDMA", "isRdma", False)])
def test_of_two_keys_for_one_field_the_last_counts_and_the_other_is_named(first: str, last: str, on: bool) -> None:
    loaded = read(f"resourceList: [{{resourceName: a, selectors: {{\n{first}: true,\n{last}: {str(on).lower()}}}}}]")
    assert loaded.settings.rules[0].edits.rdma is on
    place = f"file:2: resourceList[0].selectors.{first}"
    assert notes(loaded, NoteKind.IDLE) == [
        f"{place}: has no effect in the plugin either: {last} in line 3 means the same and takes precedence"
    ]


def test_nvidias_plugin_sorts_the_keys_first_so_the_last_is_the_one_that_sorts_last() -> None:
    assert strategy("version: v1\nflags: {migStrategy: none, MigStrategy: single}") == (False,)
    assert strategy("version: v1\nflags: {MigStrategy: single, migStrategy: none}") == (False,)
    assert strategy("version: v1\nflags: {MIGSTRATEGY: none, MigStrategy: single}") == (True, True)


def test_null_is_as_if_the_key_were_absent() -> None:
    loaded = read('{"resourceList": [{"resourceName": "a", "selectors": {"vendors": null, "isRdma": null}}]}')
    assert not loaded.settings.rules[0].edits.rdma
    assert notes(loaded, NoteKind.IGNORED) == [
        "file:1: resourceList[0].selectors.vendors: is ignored: it is null",
        "file:1: resourceList[0].selectors.isRdma: is ignored: it is null",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "flags: {migStrategy: mixed}",
        "Flags: {MigStrategy: mixed}",
        "version: ''\nflags: {migStrategy: mixed}",
        "version: null\nflags: {migStrategy: mixed}",
        "VERSION: v1\nFLAGS: {migstrategy: mixed, Plugin: null, failOnInitError: null}",
    ],
)
def test_nvidias_files_need_no_version_and_have_keys_in_any_case(text: str) -> None:
    loaded = read(text)
    assert loaded.source_format is SourceFormat.NVIDIA
    assert [rule.resource for rule in loaded.settings.rules] == ["nvidia.com/gpu", "nvidia.com/mig-{profile}"]


def test_a_version_that_is_missing_is_named() -> None:
    assert notes(read("sharing: {}"), NoteKind.REMARK) == [
        "file:1: version: is not given, which means v1, as for NVIDIA's plugin"
    ]


def test_resources_of_nvidias_format_are_a_mapping_and_ours_a_list() -> None:
    assert read("resources: {gpus: null}").source_format is SourceFormat.NVIDIA
    with pytest.raises(ConfigErrors, match="apiVersion: is missing"):
        load_bytes("file", b"resources: [{name: a.b/c}]", {}, {})


def test_the_strategy_is_still_none_where_a_file_gives_none() -> None:
    assert strategy("flags: {}") == (False,)


def test_keys_of_our_own_format_keep_their_case() -> None:
    text = b"apiVersion: ostler.dev/v1alpha1\nkind: Config\nnodename: a\n"
    with pytest.raises(ConfigErrors, match="nodename: is not a known key; did you mean nodeName"):
        load_bytes("file", text, {}, {})


def test_a_resource_that_an_earlier_one_leaves_nothing_is_left_out_and_named() -> None:
    text = """resourceList:
- {resourceName: nics, selectors: [{vendors: ["15b3"]}, {vendors: ["15b3"], needVhostNet: true}]}
- {resourceName: more, selectors: {vendors: ["15b3"], pfNames: [ens1]}}
"""
    loaded = read(text)
    assert [(rule.resource, rule.edits.vhost_net) for rule in loaded.settings.rules] == [("intel.com/nics", False)]
    never = "never gets a device in the plugin either: resourceList[0].selectors[0] (line 2) takes them all first"
    assert notes(loaded, NoteKind.IDLE) == [
        f"file:2: resourceList[0].selectors[1]: {never}",
        f"file:3: resourceList[1].selectors: {never}",
    ]
    written = convert("file", text.encode())
    assert "# Left out:" in written
    assert "intel.com/more" not in written.replace("# ", "")


def test_selectors_of_one_resource_may_differ_in_rdma_and_vhost_net() -> None:
    loaded = read(
        """resourceList:
- resourceName: nics
  selectors: [{vendors: ["15b3"], isRdma: true}, {vendors: ["8086"], needVhostNet: true}, {vendors: ["1af4"]}]
"""
    )
    given = [(rule.edits.rdma, rule.edits.vhost_net) for rule in loaded.settings.rules]
    assert given == [(True, False), (False, True), (False, False)]
    silent = "resourceList[0].selectors[2].needVhostNet: is not given, which means vhostNet false"
    assert any(silent in note for note in notes(loaded, NoteKind.TAKEN))


def test_our_own_format_takes_such_a_difference_where_both_say_it() -> None:
    text = """apiVersion: ostler.dev/v1alpha1
kind: Config
resources:
- {name: a.b/nics, devices: {pciVendors: "15b3", rdma: true}, rdmaDevices: true}
- {name: a.b/nics, devices: {pciVendors: "8086"}, rdmaDevices: false}
"""
    assert [rule.edits.rdma for rule in load_bytes("file", text.encode(), {}, {}).settings.rules] == [True, False]


@given(st.text(), st.text())
def test_folding_is_by_character(one: str, other: str) -> None:
    assert len(fold(one)) == len(one)
    assert fold(one + other) == fold(one) + fold(other)
    assert fold(fold(one)) == fold(one)


PLUGIN = "  plugin: {passDeviceSpecs: false, deviceListStrategy: envvar, deviceIDStrategy: uuid}\n"
SHARED = "  {strategy}:\n    renameByDefault: true\n    resources:\n    - {{name: nvidia.com/gpu, replicas: 4}}\n"


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_what_nvidias_readme_and_chart_show_is_taken(strategy: str) -> None:
    body = f'version: v1\nflags:\n  migStrategy: "{strategy}"\n  failOnInitError: true\n  nvidiaDriverRoot: "/"\n'
    assert read(body + PLUGIN).source_format is SourceFormat.NVIDIA


@pytest.mark.parametrize("strategy", ["timeSlicing", "mps"])
def test_what_nvidias_readme_shows_of_sharing_is_taken(strategy: str) -> None:
    (rule,) = read(f"Sharing:\n{SHARED.format(strategy=strategy)}").settings.rules
    assert (rule.resource, rule.sharing and rule.sharing.replicas) == ("nvidia.com/gpu.shared", 4)
