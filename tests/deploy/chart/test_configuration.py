"""What the agent is given by the chart is what the agent accepts and understands: its own loader judges."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from deploy.generate import CHART
from deploy.values_schema import CHARTS_OWN, values_schema
from node.edits.options import ListStrategy
from ostler.cli.main import main
from ostler.config.load import load
from ostler.config.overrides import OVERRIDES
from ostler.config.settings import EventsChoice, Settings
from tests.deploy.chart.rendering import Document, Values, container_of, flags_of, only, render

pytestmark = pytest.mark.timeout(600)  # the first test may have to build Helm

ROOT = Path(__file__).parents[3]
GOOD = ROOT / "tests" / "ostler" / "config" / "good"


def settings_of(documents: list[Document], folder: Path) -> Settings:
    """What the agent makes of the rendered files and flags; raises ``ConfigErrors``."""
    for name, content in only(documents, "ConfigMap")["data"].items():
        (folder / name).write_text(content)
    flags = {flag: value.replace("/etc/ostler", str(folder)) for flag, value in flags_of(documents).items()}
    path = Path(flags.pop("--config"))
    assert set(flags) <= {override.flag for override in OVERRIDES}
    loaded = load(path, flags, {"OSTLER_NODE_NAME": "worker-1"})
    return loaded.settings


def test_the_defaults_are_the_agents_own(tmp_path: Path) -> None:
    documents = render()
    settings = settings_of(documents, tmp_path)
    assert settings.node_name == "worker-1"
    assert settings.instance == flags_of(documents)["--instance"]
    assert settings.http == "0.0.0.0:9410"
    assert settings.kubernetes.events is EventsChoice.ON
    assert [rule.resource for rule in settings.rules] == [rule.resource for rule in load(None, {}, {}).settings.rules]
    mounted = {Path(mount["mountPath"]) for mount in container_of(documents)["volumeMounts"]}
    assert {settings.kubelet.device_plugin_dir, settings.kubelet.registry_dir, settings.state_dir} <= mounted
    assert settings.socket.parent.parent in mounted


@pytest.mark.parametrize("access", ["runtime", "privileged", "none"])
@pytest.mark.parametrize("mode", ["nodes", "full"])
def test_the_agent_looks_where_the_driver_and_devices_are_mounted(tmp_path: Path, access: str, mode: str) -> None:
    options = {"deviceListStrategy": ["cdi-cri"], "cdiMode": mode, "hook": "/usr/bin/nvidia-cdi-hook"}
    values: Values = {
        "nvidia": {"access": access},
        "driverRoot": "/run/nvidia/driver",
        "devRoot": "/",
        "config": {"defaults": options},
    }
    documents = render(values)
    nvidia = settings_of(documents, tmp_path).nvidia
    mounted = {mount["mountPath"] for mount in container_of(documents)["volumeMounts"]}
    assert (nvidia.driver_root, nvidia.dev_root) == ("/run/nvidia/driver", "/")
    assert str(nvidia.dev_root_mount / "dev") in mounted
    # Where nothing is mounted, the driver is where NVIDIA's runtime puts it: in the container's own folders.
    assert str(nvidia.driver_root_mount) == ("/driver-root" if "/driver-root" in mounted else "/")


def test_layouts_of_mig_parted_arrive(tmp_path: Path) -> None:
    text = "version: v1\nmig-configs:\n  halves:\n  - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}\n"
    config: Values = {"nvidia": {"migConfig": "halves", "migStrategy": "mixed"}}
    documents = render({"config": config, "nvidia": {"access": "privileged", "migLayouts": text}})
    files = only(documents, "ConfigMap")["data"]
    files["config.yaml"] = files["config.yaml"].replace("/etc/ostler", str(tmp_path))
    (entry,) = settings_of(documents, tmp_path).mig_layouts
    assert entry.profiles == ("3g.40gb", "3g.40gb")


def test_rules_arrive_as_they_were_given(tmp_path: Path) -> None:
    config = {
        "nvidia": {"migStrategy": "mixed"},
        "defaults": {"deviceListStrategy": ["cdi-annotations"], "cdiAnnotationPrefix": "cdi.k8s.io/"},
        "log": {"format": "json"},
    }
    settings = settings_of(render({"config": config, "nvidia": {"mig": True}}), tmp_path)
    assert {rule.resource for rule in settings.rules} >= {"nvidia.com/gpu", "nvidia.com/mig-{profile}"}
    assert settings.rules[0].edits.strategies == (ListStrategy.CDI_ANNOTATIONS,)
    assert settings.log.format == "json"


def test_events_that_are_off_are_off_for_the_agent(tmp_path: Path) -> None:
    settings = settings_of(render({"events": {"enabled": False}}), tmp_path)
    assert settings.kubernetes.events is EventsChoice.OFF


@pytest.mark.parametrize("folder", ["good", "good-nvidia", "good-sriov"])
def test_a_file_of_any_format_is_passed_on_unchanged(tmp_path: Path, folder: str) -> None:
    for file in sorted((ROOT / "tests" / "ostler" / "config" / folder).iterdir()):
        text = file.read_bytes().decode()
        documents = render({"configText": text, "cdiAccess": "always", "nics": {"enabled": True}})
        passed = tmp_path / file.name
        passed.write_bytes(only(documents, "ConfigMap")["data"]["config.yaml"].encode())
        assert load(passed, {}, {}).settings == load(file, {}, {}).settings, file.name


def test_nvidias_strategy_is_understood_from_its_own_file(tmp_path: Path) -> None:
    text = "version: v1\nflags:\n  migStrategy: mixed\n"
    settings = settings_of(render({"configText": text}), tmp_path)
    assert "nvidia.com/mig-{profile}" in {rule.resource for rule in settings.rules}


def test_a_topology_file_and_a_recorded_node_are_found(tmp_path: Path) -> None:
    nodes = ROOT / "sandbox" / "nodes"
    topology, recording = (nodes / "vm-flat-8.topology.xml").read_text(), (nodes / "vm-flat-8.yaml").read_text()
    settings = settings_of(render({"topology": topology, "recording": recording}), tmp_path)
    assert settings.topology_overrides
    assert settings.inventory.recorded is not None
    assert yaml.safe_load(settings.inventory.recorded.read_text()) == yaml.safe_load(recording)


def test_the_command_line_takes_every_flag_that_the_pod_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSTLER_NODE_NAME", "worker-1")
    documents = render({"recording": (ROOT / "sandbox" / "nodes" / "l4-2.yaml").read_text()})
    settings_of(documents, tmp_path)
    flags = [f"{flag}={value}".replace("/etc/ostler", str(tmp_path)) for flag, value in flags_of(documents).items()]
    # devices has the same options as run, and ends.
    assert main(["devices", *flags, "-o", "json"]) == 0
    assert "GPU-" in capsys.readouterr().out


def test_the_schema_takes_what_the_agent_takes() -> None:
    schema = values_schema()
    validator = jsonschema.Draft7Validator(schema)
    jsonschema.Draft7Validator.check_schema(schema)
    own = {path[0] for path in CHARTS_OWN if len(path) == 1}
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    checked = 0
    for file in sorted(GOOD.glob("*.yaml")):
        try:
            config = yaml.safe_load(file.read_text())
        except yaml.YAMLError:
            continue
        if isinstance(config, dict):
            checked += 1
            config = {key: value for key, value in config.items() if key not in own}
            assert not [str(error) for error in validator.iter_errors({**defaults, "config": config})], file.name
    assert checked >= 5
