"""The key ``mig`` and files of mig-parted become layouts, and mistakes are refused with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.partitions import MigLayout
from ostler.config.errors import ConfigErrors, NoteKind
from ostler.config.load import load, load_bytes
from ostler.config.mig_parted import parse_layouts
from ostler.config.settings import changes
from tests.ostler.config.samples import FOLDER

EXAMPLE = """\
version: v1
mig-configs:
  all-disabled:
  - devices: all
    mig-enabled: false
  all-enabled:
  - devices: all
    mig-enabled: true
    mig-devices: {}
  custom:
  - devices: [0, 1]
    mig-enabled: false
  - devices: [2]
    mig-enabled: true
    mig-devices:
      "1g.5gb": 2
      "2g.10gb": 1
      "1g.5gb+me": 1
  all-balanced:
  - device-filter: ["0x20B010DE", "0x20B110DE"]
    devices: all
    mig-enabled: true
    mig-devices: {"1g.5gb": 1}
  - device-filter: "0x233010DE"
    devices: all
    mig-enabled: true
    mig-devices: {"3g.40gb": 2}
  broken:
  - devices: some
"""


def layouts(name: str, text: str = EXAMPLE) -> tuple[MigLayout, ...]:
    return parse_layouts("f", text.encode(), name)


def test_every_key_arrives() -> None:
    settings = load(FOLDER / "good" / "mig.yaml", {}, {}).settings
    divided, whole, empty, instances = settings.rules
    assert divided.layout == ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb+me")
    assert divided.changes_mode
    assert (whole.layout, whole.changes_mode) == (None, False)
    assert (empty.layout, empty.changes_mode) == ((), True)
    assert instances.layout is None
    assert settings.mig_config == (Path("/etc/nvidia-mig-manager/config.yaml"), "all-balanced")


def test_configurations_of_mig_parted_are_read_as_there() -> None:
    assert layouts("all-disabled") == (MigLayout((), enabled=False),)
    assert layouts("all-enabled") == (MigLayout(()),)
    assert layouts("custom") == (
        MigLayout((), enabled=False, gpus=(0, 1)),
        MigLayout(("1g.5gb", "1g.5gb", "2g.10gb", "1g.5gb+me"), gpus=(2,)),
    )
    assert layouts("all-balanced") == (
        MigLayout(("1g.5gb",), models=("0x20b010de", "0x20b110de")),
        MigLayout(("3g.40gb", "3g.40gb"), models=("0x233010de",)),
    )


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("nothing", EXAMPLE, 'f:2: mig-configs: has no configuration "nothing"; set nvidia.migConfig to one of: all-'),
        ("x", "version: v2\n", "f:1: has no 'version: v1'; give a file of mig-parted"),
        ("x", "version: v1\n", "has no mapping 'mig-configs'"),
        ("x", "[]\n", "the file is not a mapping"),
        ("broken", EXAMPLE, "devices: is neither all nor a list; write all, or the GPUs' indices such as [0, 1]"),
        ("broken", EXAMPLE, "mig-enabled: is missing"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(name: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigErrors) as refused:
        layouts(name, text)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("mig-devices: {2c.3g.20gb: 1}", 'mig-devices.2c.3g.20gb: is "2c.3g.20gb", a compute instance'),
        ("mig-devices: {small: 1}", 'mig-devices.small: is "small", not a MIG profile'),
        ("mig-devices: {1g.5gb: many}", 'mig-devices.1g.5gb: is "many"'),
        ("mig-devices: [1g.5gb]", 'is not a mapping; write {"1g.10gb": 7}'),
        ("mig-enabled: false, mig-devices: {1g.5gb: 1}", "has instances, but mig-enabled is false"),
        ("device-filter: A100", 'device-filter: is "A100"'),
        ("mig-vendor: x", "mig-vendor: is not a known key"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(spec: str, problem: str) -> None:
    enabled = "" if "mig-enabled" in spec else "mig-enabled: true, "
    with pytest.raises(ConfigErrors) as refused:
        layouts("x", f"version: v1\nmig-configs:\n  x:\n  - {{devices: all, {enabled}{spec}}}\n")
    assert problem in str(refused.value)


def test_the_file_is_read_with_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mig.yaml").write_text(EXAMPLE)
    text = "apiVersion: ostler.dev/v1alpha1\nkind: Config\nnvidia: {migConfigFile: %s, migConfig: %s}\n"
    read = [load_bytes("f", (text % (tmp_path / "mig.yaml", name)).encode(), {}, {}) for name in ("custom", "nothing")]
    assert read[0].settings.mig_layouts == layouts("custom")
    assert not any(note.kind is NoteKind.FAULT for note in read[0].notes)
    assert read[1].settings.mig_layouts == ()
    (fault,) = (note for note in read[1].notes if note.kind is NoteKind.FAULT)
    assert 'has no configuration "nothing"' in fault.text
    assert fault.text.endswith("(the whole file is ignored)")
    assert "nvidia.migConfig: 0 layouts, in force" in changes(read[0].settings, read[1].settings)
