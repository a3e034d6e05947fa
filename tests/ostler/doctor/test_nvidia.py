"""Checks of NVIDIA's kernel driver, device files and container runtime, and of AMD's driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.edits.options import ListStrategy
from node.inventory.amd import vendor
from node.inventory.facts import AcceleratorFacts, DeviceFile, PciFunction, SysfsFacts
from node.inventory.habana.vendor import HABANA
from node.values import replace
from ostler.doctor.check import CheckFinding, CheckVerdict
from ostler.doctor.container_runtime import Runtime
from ostler.doctor.devices import judge_driver
from ostler.doctor.node import NodeView
from ostler.doctor.nvidia_files import (
    ExpectedFile,
    FoundFile,
    RuntimeOptions,
    expected_files,
    judge_files,
    judge_links,
    judge_runtime_options,
)
from ostler.doctor.nvml import judge_binding, judge_module, judge_nouveau
from tests.node.sysfs.tree import H100, SysfsTree
from tests.ostler.doctor.nodes import configured, examined, says, view, write

GPU = PciFunction("0000:1b:00.0", "pci0000:15/0000:1b:00.0", "0x030200", "0x10de", "0x2330", driver="nvidia")
RECORDED = ("nvidia-module", "nvidia-binding", "nouveau", "nvml", "nvidia-versions", "nvidia-device-files",
            "nvidia-char-links", "nvidia-runtime", "mps-program", "compute-mode", "mps-folders", "amd-driver",
            "habana-driver", "uevents", "rtnetlink")  # fmt: skip


def gpu_node(root: Path, *, driver: str | None = "nvidia", module: bool = True) -> tuple[SysfsTree, NodeView]:
    """A node with one H100; ``module``: the kernel module is loaded, with its majors and its GPU."""
    tree = SysfsTree(root)
    tree.pci("pci0000:15/0000:15:01.0/0000:1b:00.0", H100, driver=driver)
    if module:
        write(
            root,
            {
                "sys/module/nvidia/version": "550.54.15\n",
                "proc/driver/nvidia/gpus/0000:1b:00.0/information": "Model: x\nDevice Minor: \t 0\n",
                "proc/devices": "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n506 nvidia-caps\n"
                "507 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
            },
        )
    return tree, view(root, stat=tree._numbers)


def add_files(tree: SysfsTree, mode: int = 0o666) -> None:
    for name, major, minor in (
        ("nvidiactl", 195, 255), ("nvidia0", 195, 0), ("nvidia-uvm", 507, 0), ("nvidia-uvm-tools", 507, 1)
    ):  # fmt: skip
        tree.device(f"/dev/{name}", major, minor)
        (tree.root / "host/dev" / name).chmod(mode)


def test_a_node_without_gpus_is_skipped(tmp_path: Path) -> None:
    node = view(tmp_path)
    for name in ("nvidia-module", "nvidia-binding", "nouveau", "nvidia-runtime"):
        says(examined(node, name), CheckVerdict.SKIPPED, "no NVIDIA GPU on the PCI bus")
    for name in ("nvidia-device-files", "nvidia-char-links"):
        says(examined(node, name), CheckVerdict.SKIPPED, "kernel module is not loaded")
    says(examined(node, "amd-driver"), CheckVerdict.SKIPPED, "no AMD GPU")


def test_a_driver_that_is_loaded_and_bound_is_well(tmp_path: Path) -> None:
    _, node = gpu_node(tmp_path)
    says(examined(node, "nvidia-module"), CheckVerdict.OK, "nvidia 550.54.15 is loaded")
    says(examined(node, "nvidia-binding"), CheckVerdict.OK, "1 GPUs are bound to nvidia")
    says(examined(node, "nouveau"), CheckVerdict.OK, "not loaded")


def test_a_gpu_without_a_module_has_failed(tmp_path: Path) -> None:
    _, node = gpu_node(tmp_path, driver=None, module=False)
    says(examined(node, "nvidia-module"), CheckVerdict.FAILED, "1 NVIDIA GPUs are on the PCI bus", "modprobe nvidia")
    finding = examined(node, "nvidia-binding")
    says(finding, CheckVerdict.FAILED, "0000:1b:00.0 is bound to no driver", "/sys/bus/pci/drivers_probe")


def test_a_module_may_be_away_while_the_driver_is_quiesced_or_vfio_has_the_gpus() -> None:
    says(judge_module([GPU], None, "driver 580"), CheckVerdict.SKIPPED, "quiesced (driver 580)")
    says(judge_module([replace(GPU, driver="vfio-pci")], None, None), CheckVerdict.SKIPPED, "bound to vfio-pci")
    says(judge_binding([replace(GPU, driver="vfio-pci")]), CheckVerdict.OK, "bound to vfio-pci")


def test_nouveau_that_has_a_gpu_has_failed(tmp_path: Path) -> None:
    _, node = gpu_node(tmp_path, driver="nouveau", module=False)
    (tmp_path / "sys/module/nouveau").mkdir(parents=True)
    says(examined(node, "nouveau"), CheckVerdict.FAILED, "nouveau has taken 0000:1b:00.0", "blacklist nouveau")
    says(examined(node, "nvidia-binding"), CheckVerdict.FAILED, "bound to nouveau", "unbind it from nouveau")


def test_nouveau_that_is_loaded_for_nothing_is_a_warning() -> None:
    says(judge_nouveau([GPU], loaded=True), CheckVerdict.WARNING, "nouveau is loaded", "blacklist nouveau")


def test_device_files_with_the_drivers_numbers_are_well(tmp_path: Path) -> None:
    tree, node = gpu_node(tmp_path)
    tree.capability("gpu0/mig/gi1/access", "DeviceFileMinor: 12\nDeviceFileMode: 292\n")
    tree.capability("mig/config", "DeviceFileMinor: 1\n")
    add_files(tree)
    tree.device("/dev/nvidia-caps/nvidia-cap12", 506, 12)
    says(examined(node, "nvidia-device-files"), CheckVerdict.OK, "5 files exist")


def test_missing_device_files_fail_where_nothing_works_without_them(tmp_path: Path) -> None:
    tree, node = gpu_node(tmp_path)
    finding = examined(node, "nvidia-device-files")
    says(finding, CheckVerdict.FAILED, "/dev/nvidiactl is missing; /dev/nvidia0 is missing", "nvidia-modprobe -c 0 -u")
    tree.device("/dev/nvidiactl", 195, 255)
    tree.device("/dev/nvidia0", 195, 0)
    for file in (tmp_path / "host/dev").glob("nvidia*"):
        file.chmod(0o666)
    finding = examined(view(tmp_path, stat=tree._numbers), "nvidia-device-files")
    says(
        finding, CheckVerdict.WARNING, "/dev/nvidia-uvm is missing; /dev/nvidia-uvm-tools is missing", "nvidia-modprobe"
    )


def test_wrong_numbers_no_device_and_a_closed_mode_are_told() -> None:
    control = ExpectedFile("nvidiactl", 195, 255, needed=True)
    cap = ExpectedFile("nvidia-caps/nvidia-cap1", None, 1, needed=False)
    wrong = judge_files([control], {"nvidiactl": FoundFile((195, 0), 0o666)})
    says(
        wrong,
        CheckVerdict.FAILED,
        "/dev/nvidiactl has the numbers 195:0, the driver's are 195:255",
        "remove it, then run",
    )
    says(
        judge_files([cap], {cap.name: FoundFile((9, 2), 0o444)}),
        CheckVerdict.FAILED,
        "the driver's are ?:1",
        "remove it",
    )
    says(
        judge_files([control], {"nvidiactl": FoundFile(None, 0o644)}),
        CheckVerdict.FAILED,
        "is not a device file",
        "remove it, then",
    )
    closed = judge_files([control], {"nvidiactl": FoundFile((195, 255), 0o600)})
    says(closed, CheckVerdict.WARNING, "mode 0600: containers that do not run as root", "NVreg_DeviceFileMode=0666")
    assert expected_files([], [3], {})[-1] == ExpectedFile("nvidia-caps/nvidia-cap3", None, 3, needed=False)


def test_links_by_number_are_looked_for(tmp_path: Path) -> None:
    tree, node = gpu_node(tmp_path)
    add_files(tree)
    finding = examined(node, "nvidia-char-links")
    says(
        finding,
        CheckVerdict.WARNING,
        "no correct link for nvidia-uvm, nvidia-uvm-tools, nvidia0 and 1 more",
        "create-dev-char-symlinks",
    )
    assert "systemctl daemon-reload" in finding.found
    links = tmp_path / "host/dev/char"
    links.mkdir()
    for name, numbers in (
        ("nvidiactl", "195:255"),
        ("nvidia0", "195:0"),
        ("nvidia-uvm", "507:0"),
        ("nvidia-uvm-tools", "507:1"),
    ):
        (links / numbers).symlink_to(f"../{name}")
    says(examined(node, "nvidia-char-links"), CheckVerdict.OK, "4 links exist")


def test_a_link_to_another_file_is_wrong() -> None:
    finding = judge_links({"nvidia0": (195, 0)}, {(195, 0): "/dev/nvidia1"})
    says(finding, CheckVerdict.WARNING, "no correct link for nvidia0", "nvidia-ctk")
    says(judge_links({}, {}), CheckVerdict.SKIPPED, "no NVIDIA device file")


ENVVAR = frozenset({ListStrategy.ENVVAR})
CONTAINERD = Runtime(
    "containerd", Path("/etc/containerd/config.toml"), runtimes=(("nvidia", ""), ("runc", "")), default_runtime="nvidia"
)


def test_variables_without_nvidias_runtime_are_a_warning(tmp_path: Path) -> None:
    _, node = gpu_node(tmp_path)
    says(examined(node, "nvidia-runtime"), CheckVerdict.SKIPPED, "no configuration of containerd")
    write(tmp_path, {"host/etc/containerd/config.toml": "version = 2\n"})
    finding = examined(node, "nvidia-runtime")
    says(
        finding,
        CheckVerdict.WARNING,
        "has no NVIDIA runtime, which the strategy envvar needs",
        "nvidia-ctk runtime configure",
    )
    bare = judge_runtime_options(ENVVAR, replace_runtimes(()), None, specs=False)
    says(bare, CheckVerdict.WARNING, "containers get no devices", "cdi-cri")


def replace_runtimes(runtimes: tuple[tuple[str, str], ...]) -> Runtime:
    return Runtime("containerd", CONTAINERD.file, runtimes=runtimes, default_runtime="runc")


def test_nvidias_runtime_is_well_as_default_and_by_class(tmp_path: Path) -> None:
    strict = RuntimeOptions(variable=False)
    says(
        judge_runtime_options(ENVVAR, CONTAINERD, strict, specs=True),
        CheckVerdict.OK,
        "nvidia is the default of containerd",
    )
    by_class = replace_runtimes((("gpu", "/usr/bin/nvidia-container-runtime"), ("runc", "")))
    says(
        judge_runtime_options(ENVVAR, by_class, strict, specs=True),
        CheckVerdict.OK,
        "gpu; pods need a runtimeClassName",
    )


def test_a_runtime_that_gives_all_gpus_to_everybody_is_a_warning(tmp_path: Path) -> None:
    _, node = gpu_node(tmp_path)
    config = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n'
    write(
        tmp_path,
        {
            "host/etc/containerd/config.toml": f"version = 2\n{config}",
            "host/etc/nvidia-container-runtime/config.toml": "",
        },
    )
    finding = examined(node, "nvidia-runtime")
    says(finding, CheckVerdict.WARNING, "lets every image request all GPUs", "envvar-when-unprivileged = false")


def test_volume_mounts_that_the_runtime_does_not_accept_have_failed() -> None:
    finding = judge_runtime_options(frozenset({ListStrategy.VOLUME_MOUNTS}), CONTAINERD, RuntimeOptions(), specs=True)
    says(finding, CheckVerdict.FAILED, "does not accept devices as volume mounts", "as-volume-mounts = true")


def test_rules_with_cdi_need_no_nvidia_runtime(tmp_path: Path) -> None:
    SysfsTree(tmp_path).pci("pci0000:15/0000:15:01.0/0000:1b:00.0", H100, driver="nvidia")
    node = view(tmp_path, configured("defaults: {deviceListStrategy: [cdi-cri]}\n", tmp_path))
    says(examined(node, "nvidia-runtime"), CheckVerdict.SKIPPED, "no rule passes NVIDIA GPUs by variable or mount")


AMD = PciFunction(
    "0000:c1:00.0",
    "pci0000:c0/0000:c1:00.0",
    "0x120000",
    "0x1002",
    "0x74a1",
    driver="amdgpu",
    drm=("card0", "renderD128"),
)
KFD = DeviceFile("/dev/kfd", "c", 234, 0)


def judge_amd(gpus: list[PciFunction], files: list[DeviceFile]) -> CheckFinding:
    return judge_driver(vendor.AMD, gpus, SysfsFacts(device_files=tuple(files)))


def test_amd_gpus_with_kfd_are_well() -> None:
    says(judge_amd([AMD], [KFD]), CheckVerdict.OK, "1 AMD GPUs are bound to amdgpu")


def test_amd_gpus_without_driver_kfd_or_render_node_are_told() -> None:
    says(judge_amd([replace(AMD, driver=None)], [KFD]), CheckVerdict.FAILED, "none bound to amdgpu", "modprobe amdgpu")
    says(judge_amd([AMD], []), CheckVerdict.FAILED, "/dev/kfd is missing", "see 'dmesg' for kfd")
    says(
        judge_amd([replace(AMD, drm=("card0",))], [KFD]),
        CheckVerdict.WARNING,
        "no render node for 0000:c1:00.0",
        "dmesg",
    )
    says(judge_amd([replace(AMD, driver="vfio-pci")], []), CheckVerdict.SKIPPED, "every AMD GPU is bound to vfio-pci")


GAUDI = PciFunction("0000:33:00.0", "pci0000:30/0000:33:00.0", "0x120000", "0x1da3", "0x1020", driver="habanalabs")


def test_gaudi_cards_need_their_driver_and_its_entries_in_sysfs() -> None:
    known = SysfsFacts(accelerators=(AcceleratorFacts(GAUDI.address, ("accel0",)),))
    bare = [replace(GAUDI, driver=None)]
    says(judge_driver(HABANA, [GAUDI], known), CheckVerdict.OK, "1 Intel Gaudi GPUs are bound to habanalabs")
    says(judge_driver(HABANA, bare, known), CheckVerdict.FAILED, "none bound to habanalabs", "modprobe habanalabs")
    says(judge_driver(HABANA, [GAUDI], SysfsFacts()), CheckVerdict.WARNING, "no entry in /sys/class/accel", "dmesg")
    says(judge_driver(HABANA, [], known), CheckVerdict.SKIPPED, "no Intel Gaudi GPU")


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_node_has_nothing_of_this_machine(tmp_path: Path, name: str) -> None:
    node = view(tmp_path)
    node.settings = replace(node.settings, inventory=replace(node.settings.inventory, recorded=Path("x.yaml")))
    says(examined(node, name), CheckVerdict.SKIPPED, "a recorded node is replayed")
