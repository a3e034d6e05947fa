"""Good files give the settings and rules that they ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.names import Peer
from node.edits.options import CdiMode, EditOptions, IdStrategy, ListStrategy
from node.health.policy import HealthPace, Policy
from node.health.xids import Profile, XidTable
from node.inventory.model import DeviceKind
from node.rules import DeviceIds, Doors, Rule, Selector
from ostler.config.load import Loaded, SourceFormat, load, load_bytes
from ostler.config.settings import (
    CdiSettings,
    DraSettings,
    EventsChoice,
    HoldsSettings,
    InventorySettings,
    KubeletSettings,
    KubernetesSettings,
    LogFormat,
    LogLevel,
    LogSettings,
    NvidiaSettings,
    RegistrationChoice,
    RootSettings,
    Settings,
)
from tests.ostler.config.samples import FOLDER, GOOD

GPU, MIG, PARTITION = DeviceKind.GPU, DeviceKind.MIG, DeviceKind.PARTITION
ACCELERATORS = (GPU, MIG, PARTITION)
OTHERS = (
    Rule("amd.com/gpu", Selector((GPU, PARTITION), ("amd",))),
    Rule("gpu.intel.com/i915", Selector((GPU,), ("intel",), drivers=("i915",))),
    Rule("gpu.intel.com/xe", Selector((GPU,), ("intel",), drivers=("xe",))),
    Rule("habana.ai/gaudi", Selector((GPU,), ("habana",))),
)
HEADER = "apiVersion: ostler.dev/v1alpha1\nkind: Config\n"


def good(name: str) -> Loaded:
    return load(FOLDER / "good" / name, {}, {})


def text(body: str) -> Loaded:
    return load_bytes("config.yaml", (HEADER + body).encode(), {}, {})


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_file_is_read(path: Path) -> None:
    assert load(path, {}, {}).source_format is SourceFormat.OSTLER


def test_a_minimal_file_gives_the_defaults() -> None:
    assert good("minimal.yaml").settings == load(None, {}, {}).settings


EVERY_OPTION = EditOptions(
    strategies=(ListStrategy.ENVVAR,),
    ids=IdStrategy.INDEX,
    device_specs=False,
    cdi_mode=CdiMode.FULL,
    cdi_annotation_prefix="cdi.example.com/",
    driver_root="/run/nvidia/driver",
    dev_root="/",
    hook="/usr/bin/nvidia-cdi-hook",
    features=("gdrcopy", "mofed"),
    imex_channels=(0, 7),
    imex_required=False,
)
EVERY_SELECTOR = Selector(
    kinds=(GPU,),
    vendors=("nvidia",),
    products=("NVIDIA L4", "H100*"),
    uuids=("GPU-1f5e*",),
    pci_addresses=("0000:3b:00.0", "0000:5*"),
    names=("gpu-0000-3b-*",),
    mig_enabled=False,
)


def test_every_setting_arrives() -> None:
    settings = good("everything.yaml").settings
    assert settings == Settings(
        node_name="worker-1.example.com",
        kubelet=KubeletSettings(
            Path("/host/kubelet/device-plugins"), Path("/host/kubelet/plugins_registry"), RegistrationChoice.REGISTER
        ),
        roots=RootSettings(Path("/host/sys"), Path("/host/proc")),
        nvidia=NvidiaSettings(
            driver_root="/run/nvidia/driver",
            driver_root_mount=Path("/driver-root"),
            dev_root="/",
            dev_root_mount=Path("/host"),
            library=Path("/opt/libnvidia-ml.so.1"),
            full=True,
        ),
        cdi=CdiSettings((Path("/run/cdi"), Path("/opt/cdi")), Path("/run/cdi")),
        inventory=InventorySettings(45.0, Path("nodes/l4.yaml")),
        log=LogSettings(LogLevel.DEBUG, LogFormat.JSON),
        state_dir=Path("/var/lib/ostler-test"),
        socket=Path("/run/ostler-test/agent.sock"),
        http="[::1]:8080",
        instance="blue-7",
        rules=(Rule("example.com/one", EVERY_SELECTOR, ids=DeviceIds.NAME, edits=EVERY_OPTION, hints=False),),
        topology_file=Path("/etc/ostler/no-such-topology.yaml"),
        kubernetes=KubernetesSettings(
            EventsChoice.ON,
            Path("/etc/kubernetes/ostler.conf"),
            door_by_node=True,
            patch_allocatable=True,
            recorded_devices=True,
        ),
        holds=HoldsSettings(("nvidia-persistenced", "watch*")),
        health=Policy(XidTable(Profile.STRICT), dry_run=True, pace=HealthPace(warn=3600)),
        dra=DraSettings(
            "devices.example.com",
            Path("/host/kubelet/data"),
            (Peer.NVIDIA, Peer.DRANET),
            nri_socket=Path("/run/nri/nri.sock"),
        ),
    )


def test_devices_of_the_dra_door_have_the_options_of_the_file() -> None:
    gpu, nic, amd, part = good("dra.yaml").settings.rules
    assert {rule.door for rule in (gpu, nic, amd)} == {Doors.DRA}
    assert part.door is Doors.PLUGIN
    # Through that door all is given by CDI, whatever the strategies.
    envvar = (ListStrategy.ENVVAR,)
    assert gpu.edits == EditOptions(envvar, cdi_mode=CdiMode.DELEGATE, ids=IdStrategy.INDEX)
    assert nic.edits == EditOptions(envvar, rdma=True)
    assert amd.edits == EditOptions(envvar)
    assert part.edits.strategies == (ListStrategy.ENVVAR,)
    assert (nic.hints, nic.link_health) == (False, True)


def test_the_folder_of_plugins_is_beside_that_of_their_registration() -> None:
    assert text("").settings.dra.plugins_dir == Path("/var/lib/kubelet/plugins")
    elsewhere = text("kubelet: {pluginsRegistryDir: /var/lib/k0s/kubelet/plugins_registry}\n")
    assert elsewhere.settings.dra.plugins_dir == Path("/var/lib/k0s/kubelet/plugins")


def test_strategy_none_offers_whole_gpus() -> None:
    assert good("mig-none.yaml").settings.rules == (
        Rule("nvidia.com/gpu", Selector(kinds=(GPU,), vendors=("nvidia",))),
        *OTHERS,
    )


def test_strategy_mixed_offers_plain_gpus_and_each_whole_profile() -> None:
    assert good("mig-mixed.yaml").settings.rules == (
        Rule("nvidia.com/gpu", Selector(kinds=(GPU,), vendors=("nvidia",), mig_enabled=False)),
        Rule("nvidia.com/mig-{profile}", Selector(kinds=(MIG,), vendors=("nvidia",), whole_instances=True)),
        *OTHERS,
    )


def test_strategy_single_offers_uniform_devices_under_one_name() -> None:
    assert good("mig-single.yaml").settings.rules == (
        Rule("nvidia.com/gpu", Selector(kinds=(GPU,), vendors=("nvidia",), mig_enabled=False), uniform=True),
        Rule("nvidia.com/gpu", Selector(kinds=(MIG,), vendors=("nvidia",)), uniform=True),
        *OTHERS,
    )


def test_resources_override_each_default_alone() -> None:
    h100, whole, part, gpu = good("resources-by-product.yaml").settings.rules
    assert h100.edits == EditOptions((ListStrategy.CDI_CRI,), cdi_mode=CdiMode.DELEGATE)
    assert whole.edits == part.edits == EditOptions((ListStrategy.ENVVAR,), cdi_mode=CdiMode.DELEGATE)
    assert gpu.edits == EditOptions((ListStrategy.CDI_CRI,))
    assert [rule.resource for rule in (h100, whole, part, gpu)] == [
        "nvidia.com/h100",
        "nvidia.com/mig-{profile}",
        "nvidia.com/mig-{profile}",
        "nvidia.com/gpu",
    ]


def test_resources_beside_strategy_mixed_decide_alone_and_say_so() -> None:
    loaded = good("resources-with-mixed.yaml")
    assert [rule.resource for rule in loaded.settings.rules] == ["nvidia.com/small", "nvidia.com/gpu"]
    (note,) = loaded.notes
    assert str(note).endswith(":3: nvidia.migStrategy: adds no rule, because resources decide what is offered")


def test_mig_enabled_alone_means_whole_gpus() -> None:
    small, gpu = good("resources-with-mixed.yaml").settings.rules
    assert small.selector == Selector((MIG,), profiles=("1g.10gb", "1g.10gb+me"))
    assert gpu.selector == Selector(kinds=(GPU,), mig_enabled=False)


def test_words_of_older_yaml_are_text() -> None:
    settings = good("off.yaml").settings
    assert settings.http is None
    assert settings.node_name == "no"


def test_json_is_read() -> None:
    settings = good("json.json").settings
    assert settings.http is None
    assert settings.inventory.max_interval == 0.5
    assert settings.rules == (Rule("nvidia.com/gpu", Selector(ACCELERATORS, ("nvidia",))),)


def test_byte_order_mark_and_windows_line_ends_are_read() -> None:
    data = b"\xef\xbb\xbf" + (HEADER + "nodeName: a\n").replace("\n", "\r\n").encode()
    assert load_bytes("config.yaml", data, {}, {}).settings.node_name == "a"


@pytest.mark.parametrize(
    ("body", "driver_mount", "dev_root", "dev_mount"),
    [
        ("{}", "/", "/", "/"),
        ("{driverRoot: /run/nvidia/driver/}", "/run/nvidia/driver", "/run/nvidia/driver", "/run/nvidia/driver"),
        ("{driverRoot: /d, driverRootMount: /m}", "/m", "/d", "/m"),
        ("{driverRoot: /d, driverRootMount: /m, devRoot: /}", "/m", "/", "/"),
        ("{driverRoot: /d, devRoot: /, devRootMount: /host}", "/d", "/", "/host"),
    ],
)
def test_mounts_follow_the_roots(body: str, driver_mount: str, dev_root: str, dev_mount: str) -> None:
    settings = text(f"nvidia: {body}\n").settings
    nvidia = settings.nvidia
    assert nvidia.driver_root_mount == Path(driver_mount)
    assert nvidia.dev_root == dev_root
    assert nvidia.dev_root_mount == Path(dev_mount)
    assert settings.rules[0].edits.driver_root == nvidia.driver_root
    assert settings.rules[0].edits.dev_root == nvidia.dev_root


def test_driver_files_are_read_only_where_a_rule_gives_them() -> None:
    assert not text("").settings.nvidia.full
    full = "defaults: {deviceListStrategy: [cdi-cri], cdiMode: full, hook: /usr/bin/nvidia-cdi-hook}\n"
    assert text(full).settings.nvidia.full


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ('":9410"', "0.0.0.0:9410"),
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("localhost:0", "localhost:0"),
        ('"[::]:09410"', "[::]:9410"),
        ('""', None),
        ("off", None),
    ],
)
def test_addresses(written: str, address: str | None) -> None:
    assert text(f"http: {{address: {written}}}\n").settings.http == address


@pytest.mark.parametrize(
    ("written", "seconds"), [("500ms", 0.5), ("1.5s", 1.5), ("1m", 60.0), ("0m30s", 30.0), ("0.01h", 36.0)]
)
def test_durations(written: str, seconds: float) -> None:
    assert text(f"inventory: {{maxInterval: {written}}}\n").settings.inventory.max_interval == pytest.approx(seconds)


def test_a_resource_may_ask_for_devices_of_one_kind() -> None:
    one, other = text(
        "resources: [{name: a.b/gpu, uniform: true}, {name: a.b/nic, devices: {kind: nic}}]\n"
    ).settings.rules
    assert (one.uniform, other.uniform) == (True, False)


@pytest.mark.parametrize(("place", "by_name"), [("defaults", False), ("resource", False), ("nowhere", True)])
def test_a_nics_name_gives_it_away_unless_the_file_withholds_it(place: str, by_name: bool) -> None:
    own, general = (", namedInUse: withhold" if place == "resource" else ""), "defaults: {namedInUse: withhold}\n"
    body = f"resources: [{{name: a.b/nic, devices: {{interfaces: [eth0]}}{own}}}]\n"
    (rule,) = text((general if place == "defaults" else "") + body).settings.rules
    assert rule.by_name is by_name
