"""Commands that need no agent: what they print and what they say when something is wrong."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml

from node.inventory.recordings.document import load
from ostler import __version__
from ostler.cli.commands import COMMANDS
from ostler.cli.main import main
from sandbox.nodes import path

RECORDED = str(path("l4-2"))


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    assert "4  no agent answers at its socket" in text


@pytest.fixture
def collector() -> Iterator[None]:
    """The garbage collector is on for the next test, though ``ostler run`` turns it off for its process."""
    yield
    gc.enable()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_worth_reading(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 5


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"ostler {__version__}\n"


def test_a_wrong_command_line_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fly"])
    assert ended.value.code == 2
    assert "invalid choice: 'fly'" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m ostler config schema | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


def test_devices_of_a_recorded_node_are_a_table(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--socket", str(short_dir / "none.sock"), "--recorded", RECORDED]) == 0
    printed = capsys.readouterr()
    assert printed.err == (
        f"no agent answers at {short_dir}/none.sock (there is no such socket); start it with 'ostler run'\n"
        "scanned by this command instead:\n"
    )
    rows = printed.out.splitlines()
    assert re.split(r"\s{2,}", rows[0]) == ["NAME", "WHAT IT IS", "NUMA", "HEALTH", "OFFERED AS", "WHY"]
    assert len(rows) == 5
    assert "NVIDIA L4" in rows[1]
    assert "nvidia.com/gpu (Healthy)" in rows[1]
    assert "no rule selects it; the node itself uses it: carries the node's default route" in rows[3]


def test_devices_say_through_which_door_they_are_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = [
        {"name": "example.com/first", "door": "dra", "devices": {"kind": "gpu", "pciAddress": "0000:01:00.0"}},
        {"name": "nvidia.com/gpu", "devices": {"kind": "gpu"}},
    ]
    written = tmp_path / "ostler.yaml"
    written.write_text(yaml.safe_dump({"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "resources": rules}))
    chosen = ["--config", str(written), "--recorded", str(path("a100-mig-4"))]
    assert main(["devices", "--scan", *chosen]) == 0
    out = capsys.readouterr().out
    assert "example.com/first (Healthy, by claims)" in out
    assert "nvidia.com/gpu (Healthy)" in out
    assert main(["devices", "--scan", "-o", "json", *chosen]) == 0
    devices = yaml.safe_load(capsys.readouterr().out)["devices"]
    shown = {device["pci_address"]: (device["door"], device["offered_id"]) for device in devices if "door" in device}
    assert shown["0000:01:00.0"] == ("dra", "gpu-0000-01-00-0")
    assert shown["0000:41:00.0"][0] == "plugin"
    assert shown["0000:41:00.0"][1].startswith("GPU-")


def test_a_device_of_both_doors_says_how_each_offers_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = [{"name": "nvidia.com/gpu", "door": "both", "devices": {"kind": "gpu"}}]
    written = tmp_path / "ostler.yaml"
    written.write_text(yaml.safe_dump({"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "resources": rules}))
    chosen = ["--config", str(written), "--recorded", str(path("a100-mig-4"))]
    assert main(["devices", "--scan", *chosen]) == 0
    out = capsys.readouterr().out
    assert "nvidia.com/gpu (Healthy, by claims Healthy)" in out
    assert "nvidia.com/gpu (Healthy, by claims not)" in out
    assert "by claims: it is in MIG mode, so that only its MIG devices can be allocated to claims" in out
    assert main(["config", "check", str(written)]) == 0
    assert "offers nvidia.com/gpu through both doors (envvar; claims by CDI)" in capsys.readouterr().out


def test_a_check_says_how_a_resource_is_shared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpus = {"vendor": "nvidia", "kind": "gpu"}
    own = [{"device": 0, "replicas": 2}]
    rules = [
        {"name": "a.b/one", "devices": {**gpus, "name": "gpu-0*"}, "sharing": {"strategy": "mps", "replicas": 4}},
        {"name": "a.b/two", "devices": {**gpus, "uuid": "GPU-1*"}, "sharing": {"replicas": 8, "perDevice": own}},
        {"name": "a.b/three", "devices": gpus, "door": "dra", "partitions": "onDemand"},
    ]
    written = tmp_path / "ostler.yaml"
    written.write_text(yaml.safe_dump({"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "resources": rules}))
    assert main(["config", "check", str(written)]) == 0
    out = capsys.readouterr().out
    assert "offers a.b/one through the plugin door (envvar), 4 shares of each device (mps)\n" in out
    assert "offers a.b/two through the plugin door (envvar), 8 shares of each device or as perDevice says" in out
    assert "offers a.b/three through the dra door (CDI), with partitions on demand\n" in out


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_devices_are_data_for_programs(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--scan", "-o", form, "--recorded", RECORDED]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    resources = {device["name"]: device.get("resource") for device in document["devices"] if device["kind"] == "gpu"}
    assert set(resources.values()) == {"nvidia.com/gpu"}
    assert document["devices"][0]["health"]["state"] == "healthy"


def test_this_machine_without_a_driver_says_what_it_waits_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("sys", "proc", "root"):
        (tmp_path / name).mkdir()
    roots = ["--sys-root", str(tmp_path / "sys"), "--proc-root", str(tmp_path / "proc")]
    assert main(["devices", "--scan", *roots, "--nvidia-driver-root", str(tmp_path / "root")]) == 0
    text = capsys.readouterr().out
    assert text.startswith("no devices\n")
    assert "nvml: waiting: waiting for driver" in text
    assert "no NVIDIA GPU on the PCI bus" in text


def test_a_recording_that_is_not_there_is_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--scan", "--recorded", "/nonexistent.yaml"]) == 1
    assert "/nonexistent.yaml" in capsys.readouterr().err


def test_a_recording_can_be_recorded_again_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "again.yaml"
    assert main(["record", "--recorded", RECORDED, "-o", str(out), "--name", "l4-again"]) == 0
    assert f"{out}: 2 GPUs and 2 NICs recorded" in capsys.readouterr().err
    first, again = load(Path(RECORDED).read_text(), "first"), load(out.read_text(), "again")
    assert again.facts == first.facts
    assert again.name == "l4-again"


def test_an_anonymous_recording_has_no_uuid_of_the_original(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--recorded", RECORDED, "--anonymize"]) == 0
    text = capsys.readouterr().out
    original = load(Path(RECORDED).read_text(), "original").facts.nvml
    again = load(text, "again").facts.nvml
    assert original is not None
    assert again is not None
    for gpu in original.gpus:
        assert gpu.uuid is not None
        assert gpu.uuid not in text
    assert len(again.gpus) == 2


def test_an_anonymous_recording_has_no_address_of_the_original(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--recorded", RECORDED, "--anonymize"]) == 0
    text = capsys.readouterr().out
    original, again = load(Path(RECORDED).read_text(), "original").facts, load(text, "again").facts
    assert original.sysfs is not None
    assert original.network is not None
    assert again.network is not None
    for interface in original.sysfs.interfaces:
        assert interface.address
        assert interface.address not in text
    for given in original.network.addresses:
        assert given.address.partition("/")[0] not in text
    assert len(again.network.addresses) == len(original.network.addresses)


def test_no_control_character_of_an_interface_reaches_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = tmp_path / "hostile.yaml"
    text = Path(RECORDED).read_text()
    assert "net/eno8403\n" in text
    text = re.sub(r"net/eno8403$", r"net/x", text, flags=re.MULTILINE)
    text = re.sub(r"path: (.*net/)x$", r'path: "\1\\e[31mnic"', text, flags=re.MULTILINE)
    hostile.write_text(re.sub(r"name: eno8403\b", r'name: "\\e[31mnic"', text))
    assert main(["devices", "--scan", "--recorded", str(hostile)]) == 0
    printed = capsys.readouterr().out
    assert "\\x1b[31mnic" in printed
    assert "\x1b" not in printed


def test_a_recording_that_cannot_be_written_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", "--recorded", RECORDED, "-o", str(tmp_path / "no" / "where.yaml")]) == 1
    assert "where.yaml cannot be written: No such file or directory" in capsys.readouterr().err


def test_a_good_configuration_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("version: v1\nflags:\n  migStrategy: mixed\n")
    assert main(["config", "check", str(file)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{file}: usable (nvidia)\n")
    assert "offers nvidia.com/gpu through the plugin door (envvar)" in text
    assert "offers nvidia.com/mig-{profile} through the plugin door (envvar)" in text


def test_a_bad_configuration_is_exit_code_3_with_every_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("apiVersion: ostler.dev/v1alpha1\nkind: Config\nlog: {level: loud}\nhttps: {}\n")
    assert main(["config", "check", str(file)]) == 3
    text = capsys.readouterr().err
    assert f"{file}:3: log.level" in text
    assert f"{file}:4: https" in text


def test_a_broken_topology_file_is_exit_code_3_though_the_rest_is_usable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, overrides = tmp_path / "c.yaml", tmp_path / "t.xml"
    file.write_text(f"apiVersion: ostler.dev/v1alpha1\nkind: Config\ntopology: {{file: {overrides}}}\n")
    overrides.write_text("<system>\n<cpu numaid='x'/></system>")
    assert main(["config", "check", str(file)]) == 3
    allowed = "whole numbers from -1 to 1023 (the whole file is ignored)"
    assert capsys.readouterr().err.splitlines() == [
        f"ostler: {file}: usable, but not all of it has effect",
        f'{overrides}:2: <cpu> numaid: is "x"; allowed: {allowed}',
    ]
    overrides.write_text(path("vm-flat-8").with_suffix(".topology.xml").read_text())
    assert main(["config", "check", str(file)]) == 0


def test_a_bad_flag_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--scan", "--http", "nowhere"]) == 3
    assert "--http" in capsys.readouterr().err


def test_the_schema_judges_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"apiVersion": "ostler.dev/v1alpha1", "kind": "Config"}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "rules": []}, schema)


@pytest.mark.parametrize("command", ["status", "rescan", "reload"])
def test_commands_that_need_an_agent_say_so(command: str, short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--socket", str(short_dir / "x")]) == 4
    assert capsys.readouterr().err == (
        f"ostler: no agent answers at {short_dir}/x (there is no such socket); start it with 'ostler run'\n"
    )
