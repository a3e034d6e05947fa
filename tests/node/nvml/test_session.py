"""The session over time: no library yet, no driver yet, upgrades, and who reads from where."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from node.inventory.facts import NvmlFacts
from node.inventory.nvidia.health import silence
from node.inventory.nvidia.nvml import NvmlSource
from node.inventory.nvidia.nvml_library import FOLDERS
from tests.node.nvml import nodes, stub
from tests.node.nvml.conftest import ServedNode, read

pytestmark = stub.needs_gcc


def test_without_a_library_the_status_says_where_it_was_looked_for(node: ServedNode) -> None:
    facts = read(node.source())
    assert facts == NvmlFacts(status="LIBRARY_NOT_FOUND", detail=facts.detail)
    assert facts.detail == (
        f"no libnvidia-ml.so.1 under the driver root {node.root} (looked in usr/lib64, usr/lib/x86_64-linux-gnu, "
        "usr/lib/aarch64-linux-gnu, lib64, lib/x86_64-linux-gnu, lib/aarch64-linux-gnu, usr/lib, "
        "usr/local/nvidia/lib64, usr/lib/wsl/lib)"
    )


def test_a_library_that_the_configuration_names_and_that_is_absent_is_named(node: ServedNode) -> None:
    node.install()
    facts = read(node.source(node.root / "elsewhere.so"))
    assert facts.status == "LIBRARY_NOT_FOUND"
    assert facts.detail == f"{node.root}/elsewhere.so, which the configuration names as the library, does not exist"


def test_a_library_that_cannot_be_loaded_is_named_with_the_loaders_reason(node: ServedNode) -> None:
    path = node.root / "usr/lib64" / stub.SONAME
    path.parent.mkdir(parents=True)
    path.write_text("no library")
    facts = read(node.source())
    assert facts.status == "LIBRARY_NOT_LOADABLE"
    assert facts.detail.startswith(f"libnvidia-ml.so.1 cannot be loaded ({path}: ")


def test_a_library_for_another_machine_does_not_hide_the_right_one(node: ServedNode) -> None:
    path = node.root / FOLDERS[0] / stub.SONAME
    path.parent.mkdir(parents=True)
    path.write_text("no library")
    node.install(folder=FOLDERS[1])
    node.serve(nodes.small())
    assert read(node.source()) == nodes.small()


def test_a_loop_of_links_is_no_library(node: ServedNode) -> None:
    path = node.root / "usr/lib64" / stub.SONAME
    path.parent.mkdir(parents=True)
    path.symlink_to(path)
    assert read(node.source()).status == "LIBRARY_NOT_FOUND"


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_library_is_found_in_every_usual_folder(node: ServedNode, folder: str) -> None:
    node.install(folder=folder)
    node.serve(nodes.small())
    assert read(node.source()) == nodes.small()


def test_the_named_library_wins_over_the_driver_root(node: ServedNode, tmp_path: Path) -> None:
    node.install()
    node.serve(nodes.hgx())
    named = stub.build(tmp_path / "named", without=["nvmlDeviceGetSerial"])
    assert {gpu.serial for gpu in read(node.source(named)).gpus} == {None}


def test_the_soname_resolves_to_the_library_under_the_driver_root(node: ServedNode) -> None:
    path = node.install()
    node.serve(nodes.small())
    read(node.source())
    by_soname = ctypes.CDLL(stub.SONAME)
    try:
        assert by_soname.nvmlShutdown() == 0, "the source's own session: no other library is initialised"
        assert str(path) in Path("/proc/self/maps").read_text()
    finally:
        _ctypes.dlclose(by_soname._handle)


def test_close_unloads_the_library_and_a_later_read_starts_over(node: ServedNode) -> None:
    path = node.install()
    node.serve(nodes.hgx())
    source = node.source()
    read(source)
    assert str(path) in Path("/proc/self/maps").read_text()
    source.close()
    assert str(path) not in Path("/proc/self/maps").read_text()
    source.close()
    assert read(source) == nodes.hgx()


def test_a_library_that_appears_later_is_found(node: ServedNode) -> None:
    source = node.source()
    assert read(source).status == "LIBRARY_NOT_FOUND"
    node.install()
    node.serve(nodes.hgx())
    assert read(source) == nodes.hgx()


def test_a_driver_loaded_later_is_found(node: ServedNode) -> None:
    path = node.install()
    source = node.source()
    facts = read(source)
    assert (facts.status, facts.gpus) == ("DRIVER_NOT_LOADED", ())
    assert facts.detail == f"nvmlInit of {path} says DRIVER_NOT_LOADED"
    node.serve(nodes.hgx())
    assert read(source) == nodes.hgx()


def test_a_module_that_is_loaded_is_not_said_to_be_missing(node: ServedNode) -> None:
    path = node.install()
    node.show_module("550.54.15", ["0000:01:00.0"])
    facts = read(node.source())
    assert (facts.status, facts.detail) == ("DRIVER_UNREACHABLE", f"nvmlInit of {path} says DRIVER_NOT_LOADED")
    assert "is loaded, but its device files are not there or cannot be opened (DRIVER_UNREACHABLE)" in silence(facts)


@pytest.mark.parametrize("status", ["LIB_RM_VERSION_MISMATCH", "DRIVER_NOT_LOADED", "UNKNOWN", "TIMEOUT"])
def test_a_silent_nvml_keeps_the_gpus_of_the_last_good_read(node: ServedNode, status: str) -> None:
    path = node.install()
    node.serve(nodes.hgx())
    source = node.source()
    good = read(source)
    node.serve(NvmlFacts(status=status), "error.nvmlDeviceGetCount UNINITIALIZED\n")
    first = read(source)
    assert first == replace(good, status="UNINITIALIZED", detail=f"nvmlDeviceGetCount of {path} says UNINITIALIZED")
    for _ in range(3):
        assert read(source) == replace(good, status=status, detail=f"nvmlInit of {path} says {status}")
    node.serve(nodes.hgx())
    assert read(source) == good


@pytest.mark.parametrize("error", ["UNKNOWN", "UNINITIALIZED", "TIMEOUT"])
def test_without_a_count_the_session_is_opened_anew(node: ServedNode, error: str) -> None:
    node.install()
    node.serve(nodes.hgx())
    source = node.source()
    good = read(source)
    node.serve(nodes.hgx(), f"error.nvmlDeviceGetCount {error}\n")
    assert read(source).status == error
    node.serve(nodes.hgx())
    assert read(source) == good


def test_a_driver_that_goes_in_the_middle_of_a_read_ends_the_session(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx())
    source = node.source()
    good = read(source)
    node.serve(nodes.hgx(), "gpu4.error.nvmlDeviceGetMemoryInfo DRIVER_NOT_LOADED\n")
    facts = read(source)
    assert (facts.status, facts.gpus) == ("DRIVER_NOT_LOADED", good.gpus)
    assert facts.detail.startswith("nvmlDeviceGetMemoryInfo of ")


def test_an_upgrade_is_met_by_the_new_library(node: ServedNode) -> None:
    node.install(without=["nvmlDeviceGetSerial"])
    node.serve(nodes.hgx())
    source = node.source()
    assert read(source).gpus[0].serial is None
    node.serve(NvmlFacts(status="LIB_RM_VERSION_MISMATCH"), "error.nvmlDeviceGetCount LIB_RM_VERSION_MISMATCH\n")
    assert read(source).status == "LIB_RM_VERSION_MISMATCH"
    node.install()
    node.serve(nodes.hgx())
    assert read(source) == nodes.hgx()


def test_a_changed_kernel_module_opens_a_new_session_with_the_new_library(node: ServedNode) -> None:
    node.install(without=["nvmlDeviceGetSerial"])
    node.serve(nodes.hgx())
    node.show_module("550.107.02", ["0000:1b:00.0"])
    source = node.source()
    assert read(source).gpus[0].serial is None
    node.install()
    assert read(source).gpus[0].serial is None, "nothing says that the driver changed: the session stays"
    node.show_module("560.28.03", ["0000:1b:00.0"])
    assert read(source) == nodes.hgx()


def test_a_gpu_that_is_bound_later_opens_a_new_session(node: ServedNode) -> None:
    node.install(without=["nvmlDeviceGetSerial"])
    node.serve(nodes.hgx())
    node.show_module("550.107.02", ["0000:1b:00.0"])
    source = node.source()
    read(source)
    node.install()
    node.show_module("550.107.02", ["0000:2b:00.0"])
    assert read(source) == nodes.hgx()


def test_reading_from_changing_worker_threads_gives_the_same_facts(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx())
    source = node.source()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: read(source), range(12)))
    assert results == [nodes.hgx()] * 12


def test_two_sources_of_one_process_take_turns(node: ServedNode, tmp_path: Path) -> None:
    node.install()
    node.serve(nodes.hgx())
    ours, other = node.source(), node.source(stub.build(tmp_path / "other", without=["nvmlDeviceGetSerial"]))
    assert read(ours) == nodes.hgx()
    assert read(other).gpus[0].serial is None
    assert read(ours) == nodes.hgx()
    other.close()
    assert read(ours) == nodes.hgx()


@pytest.mark.skipif(
    any((Path("/") / folder / stub.SONAME).exists() for folder in FOLDERS),
    reason="this machine has a driver of its own in the usual folders",
)
def test_the_plain_soname_is_asked_of_the_loader_when_the_root_is_the_hosts(node: ServedNode) -> None:
    path = node.install()
    node.serve(nodes.small())
    script = (
        "from pathlib import Path\n"
        "from node.inventory.nvidia.nvml import NvmlSource\n"
        "source = NvmlSource(proc=Path('/nonexistent'))\n"
        "print(source.read().nvml.gpus[0].name)\n"
        "source.close()\n"
        "assert 'libnvidia-ml' not in Path('/proc/self/maps').read_text()\n"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(path.parent), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True, timeout=240)
    assert run.stdout == "NVIDIA GeForce GTX 1050\n"


def test_the_binding_is_imported_by_the_first_read_that_finds_a_library() -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from node.inventory.nvidia.nvml import NvmlSource\n"
        "NvmlSource(Path('/nonexistent')).read()\n"
        "assert 'pynvml' not in sys.modules\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=240)


def test_the_source_is_called_nvml() -> None:
    assert NvmlSource().name == "nvml"
