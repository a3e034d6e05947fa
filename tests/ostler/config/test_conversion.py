"""A foreign file and what it is converted to give the same settings, and the text says what differs."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ostler.cli.main import main
from ostler.config.conversion import convert
from ostler.config.errors import ConfigErrors
from ostler.config.load import Loaded, SourceFormat, load_bytes
from tests.ostler.config.samples import GOOD, GOOD_NVIDIA, GOOD_SRIOV

FOREIGN = [*GOOD_NVIDIA, *GOOD_SRIOV]

PATHS = st.sampled_from(["/", "/run/nvidia/driver", "/drivers/with blank", "/true", "/a'b", '/a"b', "/ü#x: y"])
BOOLEANS = st.booleans()
LIST_STRATEGIES = st.sampled_from(["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"])
FLAGS = {
    "migStrategy": st.sampled_from(["none", "single", "mixed"]),
    "mpsRoot": st.sampled_from(["", "/run/nvidia/mps", "/mps"]),
    "failOnInitError": BOOLEANS,
    "nvidiaDriverRoot": PATHS,
    "nvidiaDevRoot": PATHS,
    "gdrcopyEnabled": BOOLEANS,
    "gdsEnabled": BOOLEANS,
    "mofedEnabled": BOOLEANS,
}
PLUGIN = {
    "sharedDevicesAllocationPolicy": st.sampled_from(["distributed", "packed"]),
    "passDeviceSpecs": BOOLEANS,
    "deviceListStrategy": LIST_STRATEGIES | st.lists(LIST_STRATEGIES, min_size=1, max_size=4, unique=True),
    "deviceIDStrategy": st.sampled_from(["uuid", "index"]),
    "cdiAnnotationPrefix": st.sampled_from(["cdi.k8s.io/", "cdi.example.com/"]),
    "nvidiaCTKPath": PATHS,
    "containerDriverRoot": PATHS,
}
PRODUCTS = st.sampled_from(["*", "A100-SXM4-40GB", "*H100*", "NVIDIA L4", "no", "80GB"])
PROFILES = st.sampled_from(["*", "1g.*", "1g.10gb", "1c.2g.20gb", "1g.10gb+me"])
NAMES = st.sampled_from(["gpu", "nvidia.com/gpu", "small", "a100", "on"])
RENAMES = {
    "gpus": st.lists(st.fixed_dictionaries({"pattern": PRODUCTS, "name": NAMES}), max_size=3),
    "mig": st.lists(st.fixed_dictionaries({"pattern": PROFILES, "name": NAMES}), max_size=3),
}
UUIDS = [f"GPU-b1028956-cfa2-0990-bf4a-5da9abb5176{digit}" for digit in range(3)]
SHARED_ITEMS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["gpu", "nvidia.com/gpu", "mig-1g.10gb", "nvidia.com/mig-1g.10gb.me", "small", "a100"]),
        "replicas": st.sampled_from([2, 4, 48]),
    },
    optional={
        "devices": st.just("all")
        | st.just(2)
        | st.lists(st.sampled_from([0, "1", "0:1", *UUIDS]), min_size=1, max_size=3),
        "rename": st.sampled_from(["small.shared", "gpu", "nvidia.com/other"]),
    },
)
SHARED = st.fixed_dictionaries(
    {"resources": st.lists(SHARED_ITEMS, min_size=1, max_size=3)},
    optional={"renameByDefault": BOOLEANS, "failRequestsGreaterThanOne": BOOLEANS},
)
NVIDIA_FILES = st.fixed_dictionaries(
    {"version": st.just("v1")},
    optional={
        "flags": st.fixed_dictionaries({}, optional={**FLAGS, "plugin": st.fixed_dictionaries({}, optional=PLUGIN)}),
        "resources": st.fixed_dictionaries({}, optional=RENAMES),
        "imex": st.fixed_dictionaries({}, optional={"channelIDs": st.just([0]), "required": BOOLEANS}),
        "sharing": st.fixed_dictionaries({"timeSlicing": SHARED}) | st.fixed_dictionaries({"mps": SHARED}),
    },
)


def some(*items: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(items), max_size=3, unique=True)


SELECTORS = st.fixed_dictionaries(
    {},
    optional={
        "vendors": some("15b3", "8086", "1572"),
        "devices": some("101e", "1e10", "1572"),
        "drivers": some("vfio-pci", "mlx5_core", "iavf"),
        "pciAddresses": some("0000:86:00.1", "0000:86:00.2"),
        "pfNames": some(
            "ens1np0",
            "ens2np1#0-3,7",
            "off#0",
            "1e3#1-1",
            "ü#2",
            "a\u2028b",
            "a\u0085b\x7f#0",
            "\U0001f600",
            'a\x01"\\b',
        ),
        "rootDevices": some("0000:86:00.0#0-9", "0000:87:00.0"),
        "linkTypes": some("ether", "infiniband"),
        "acpiIndexes": some("101", "7"),
        "pKeys": some("0x7fff", "0xFFFF"),
        "isRdma": BOOLEANS,
        "needVhostNet": BOOLEANS,
        "auxTypes": st.just([]),
    },
)
RESOURCES = st.fixed_dictionaries(
    {
        "resourceName": st.sampled_from(["nics", "fast_nics", "no"]),
        "selectors": st.lists(SELECTORS, min_size=1, max_size=3),
    },
    optional={
        "resourcePrefix": st.sampled_from(["", "example.com", "mellanox.com"]),
        "deviceType": st.just("netDevice"),
        "excludeTopology": BOOLEANS,
    },
)
SRIOV_FILES = st.fixed_dictionaries({"resourceList": st.lists(RESOURCES, min_size=1, max_size=3)})


def text(body: str) -> str:
    return convert("theirs.yaml", body.encode())


def loaded(data: bytes | str) -> Loaded:
    return load_bytes("config.yaml", data if isinstance(data, bytes) else data.encode(), {}, {})


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.stem)
def test_a_converted_sample_gives_the_same_settings(path: Path) -> None:
    converted = loaded(convert(path.name, path.read_bytes()))
    assert converted.source_format is SourceFormat.OSTLER
    assert converted.settings == loaded(path.read_bytes()).settings


@given(NVIDIA_FILES)
def test_a_converted_nvidia_file_gives_the_same_settings(file: dict[str, object]) -> None:
    judge(file)


@given(SRIOV_FILES)
def test_a_converted_sriov_file_gives_the_same_settings(file: dict[str, object]) -> None:
    judge(file)


def judge(file: dict[str, object]) -> None:
    data = json.dumps(file, ensure_ascii=False).encode()
    try:
        theirs = loaded(data).settings
    except ConfigErrors:
        assume(False)
    assert loaded(convert("theirs.json", data)).settings == theirs


def test_every_value_says_the_key_and_line_that_it_comes_from() -> None:
    lines = text("version: v1\nflags:\n  gdsEnabled: true\n  plugin:\n    deviceIDStrategy: index\n").splitlines()
    assert "  gds: true  # flags.gdsEnabled, line 3" in lines
    assert "  deviceIDStrategy: index  # flags.plugin.deviceIDStrategy, line 5" in lines


def test_what_has_no_meaning_stands_above_with_the_reason() -> None:
    converted = text("version: v1\nflags: {useNodeFeatureAPI: true}\n")
    assert "# Ignored:\n# - flags.useNodeFeatureAPI, line 2: ostler creates no node labels\n" in converted


def test_a_default_that_is_another_one_there_is_told() -> None:
    told = "# - passDeviceSpecs is not in the file; its default is true here and false in the plugin"
    assert told in text("version: v1\n")
    assert told not in text("version: v1\nflags: {plugin: {passDeviceSpecs: false}}\n")
    assert told not in text("version: v1\nflags: {plugin: {deviceListStrategy: cdi-cri}}\n")


def test_a_strategy_is_written_out_as_resources() -> None:
    converted = text("version: v1\nflags: {migStrategy: single}\n")
    assert "# - migStrategy single is written out as resources." in converted
    assert converted.count("- name: nvidia.com/gpu") == converted.count("uniform: true") == 2
    assert "migStrategy:" not in converted


def test_the_sriov_plugins_own_prefix_is_told_where_it_is_used() -> None:
    told = "# - Names without a resourcePrefix begin with intel.com."
    assert told in text("resourceList: [{resourceName: nics, selectors: {}}]\n")
    assert told not in text("resourceList: [{resourceName: nics, resourcePrefix: a.b, selectors: {}}]\n")


def test_a_name_in_a_converted_sriov_file_does_not_give_away_the_nodes_nic() -> None:
    (rule,) = loaded(text("resourceList: [{resourceName: nics, selectors: {pfNames: [eth0]}}]\n")).settings.rules
    assert not rule.by_name


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_file_in_our_format_is_refused(path: Path) -> None:
    with pytest.raises(ConfigErrors, match="apiVersion: is in ostler's own format already; use it as it is"):
        convert(path.name, path.read_bytes())


def test_what_is_refused_there_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigErrors) as caught:
        text("version: v1\nflags:\n  deviceDiscoveryStrategy: tegra\n")
    assert str(caught.value) == (
        "theirs.yaml:3: flags.deviceDiscoveryStrategy: is tegra, whose devices ostler does not find; "
        "allowed: auto, nvml"
    )


def test_shared_resources_are_written_out_with_their_line() -> None:
    converted = text("version: v1\nsharing:\n  mps:\n    resources:\n    - {name: gpu, replicas: 2, devices: [1]}\n")
    assert "  sharing:\n    strategy: mps\n    replicas: 2  # sharing.mps.resources[0], line 5\n" in converted
    assert '    perDevice:\n    - device: "1"\n      replicas: 2\n    - device: "*"\n      replicas: 1\n' in converted
    assert (
        "# - The keys rename and devices of shared resources have effect: NVIDIA's plugin overrules them." in converted
    )


def test_the_command_prints_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text("version: v1\n")
    assert main(["config", "convert", str(file)]) == 0
    assert capsys.readouterr().out == text("version: v1\n")


def test_the_command_reads_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"version: v1\n")))
    assert main(["config", "convert", "-"]) == 0
    assert capsys.readouterr().out == text("version: v1\n")


def test_the_command_ends_with_3_and_every_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text("version: v1\nflags: {migStrategy: both, gds: true}\n")
    assert main(["config", "convert", str(file)]) == 3
    output = capsys.readouterr()
    assert output.out == ""
    assert f'{file}:2: flags.migStrategy: is "both"; allowed: none, single, mixed' in output.err
    assert "flags.gds: is not a known key; allowed here: migStrategy, " in output.err
