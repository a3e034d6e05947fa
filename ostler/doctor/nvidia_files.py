"""Checks of NVIDIA's device files (present, with the driver's numbers, open to containers) and container runtime.

Major 195 is NVIDIA's own; /proc/devices has the numbers that are assigned when modules load. Containers get the device
files themselves (not copies), so a fault here is a fault in every container. Only NVIDIA's container runtime turns
variables and mounts that name devices into devices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from node.edits.options import ListStrategy
from node.inventory.model import DeviceKind
from node.inventory.sysfs.device_files import StatDevice
from node.rules import Door, Rule
from ostler.doctor.check import Check, CheckFinding, failed, joined, ok, several, skipped, warning
from ostler.doctor.container_runtime import Runtime, find_runtime
from ostler.doctor.node import NodeView
from ostler.doctor.nvml import NO_GPU, VENDOR
from ostler.doctor.reading import read_toml, text_of

_MAJOR = 195
_CONTROL_MINOR = 255
_NO_DRIVER = "NVIDIA's kernel module is not loaded"
_MAKE = "run 'nvidia-modprobe -c 0 -u' (once per boot; nvidia-persistenced does it too)"
_LINKS = "run 'nvidia-ctk system create-dev-char-symlinks --create-all' at every boot"
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
_ALL_RW = 0o666


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """A device file that should exist: path below /dev, numbers (major None if the driver does not report it).

    ``needed``: nothing works without it; the driver's tools create the others when they are first used.
    """

    name: str
    major: int | None
    minor: int
    needed: bool


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A path's device numbers, None if it is not a character device, and its permission bits."""

    numbers: tuple[int, int] | None
    mode: int


def expected_files(
    gpu_minors: Iterable[int], capability_minors: Iterable[int], majors: Mapping[str, int]
) -> list[ExpectedFile]:
    """The files of these GPUs and MIG instances; ``majors`` as /proc/devices has them."""
    frontend = majors.get("nvidia", majors.get("nvidia-frontend", _MAJOR))
    uvm, caps = majors.get("nvidia-uvm"), majors.get("nvidia-caps")
    files = [ExpectedFile("nvidiactl", majors.get("nvidiactl", frontend), _CONTROL_MINOR, needed=True)]
    files += [ExpectedFile(f"nvidia{minor}", frontend, minor, needed=True) for minor in sorted(gpu_minors)]
    files += [ExpectedFile("nvidia-uvm", uvm, 0, needed=False), ExpectedFile("nvidia-uvm-tools", uvm, 1, needed=False)]
    return files + [
        ExpectedFile(f"nvidia-caps/nvidia-cap{minor}", caps, minor, needed=False) for minor in sorted(capability_minors)
    ]


def judge_files(expected: Iterable[ExpectedFile], found: Mapping[str, FoundFile]) -> CheckFinding:
    """Whether every file exists and is right. ``found``: by name, without missing ones."""
    expected = list(expected)
    findings = [finding for each in expected if (finding := _judge_file(each, found.get(each.name))) is not None]
    return joined(findings, f"{len(expected)} files exist, with the driver's numbers")


def _judge_file(expected: ExpectedFile, found: FoundFile | None) -> CheckFinding | None:
    path = f"/dev/{expected.name}"
    if found is None:
        if expected.needed:
            return failed(f"{path} is missing", _MAKE)
        return warning(f"{path} is missing", _MAKE)
    if found.numbers is None:
        return failed(f"{path} is not a device file", f"remove it, then {_MAKE}")
    if found.numbers[1] != expected.minor or (expected.major is not None and found.numbers[0] != expected.major):
        major = "?" if expected.major is None else expected.major
        wrong = (
            f"{path} has the numbers {found.numbers[0]}:{found.numbers[1]}, the driver's are {major}:{expected.minor}"
        )
        return failed(wrong, f"remove it, then {_MAKE}")
    if not expected.name.startswith("nvidia-caps/") and found.mode & _ALL_RW != _ALL_RW:
        found_mode = f"{path} has mode {found.mode:04o}: containers that do not run as root cannot open it"
        return warning(found_mode, "give the module NVreg_DeviceFileMode=0666 (options nvidia in /etc/modprobe.d)")
    return None


def judge_links(files: Mapping[str, tuple[int, int]], targets: Mapping[tuple[int, int], str]) -> CheckFinding:
    """Whether device files can be found by number. ``targets``: where /dev/char/MAJOR:MINOR points to, by numbers."""
    if not files:
        return skipped("there is no NVIDIA device file")
    missing = [name for name, numbers in sorted(files.items()) if numbers not in targets]
    wrong = [
        name for name, numbers in sorted(files.items()) if numbers in targets and targets[numbers] != f"/dev/{name}"
    ]
    if missing or wrong:
        found = f"/dev/char has no correct link for {several(missing + wrong, 3)}: with systemd's cgroup driver"
        return warning(f"{found} containers lose their GPUs at 'systemctl daemon-reload'", _LINKS)
    return ok(f"{len(files)} links exist")


def read_majors(proc: Path) -> dict[str, int]:
    """Major numbers of character devices by name, as /proc/devices has them."""
    text, _, _ = (text_of(proc / "devices") or "").partition("Block devices:")
    pairs = (line.split() for line in text.splitlines())
    return {pair[1]: int(pair[0]) for pair in pairs if len(pair) == 2 and pair[0].isdigit()}


def read_gpu_minors(proc: Path) -> tuple[int, ...]:
    """Minor numbers of the GPUs that the driver has."""
    files = sorted((proc / "driver/nvidia/gpus").glob("*/information"))
    matches = (_MINOR.search(text_of(file) or "") for file in files)
    return tuple(int(match[1]) for match in matches if match is not None)


def read_files(dev: Path, names: Iterable[str], stat: StatDevice) -> dict[str, FoundFile]:
    """The files below ``dev`` with these names."""
    found = {}
    for name in names:
        path = str(dev / name)
        try:
            numbers = stat(path)
            mode = os.lstat(path).st_mode & 0o7777
        except OSError:
            continue  # Missing or hidden; the finding says that it is missing.
        found[name] = FoundFile(numbers[1:] if numbers is not None and numbers[0] == "c" else None, mode)
    return found


def read_links(dev: Path, numbers: Iterable[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """The targets of the links below ``dev``/char, as paths that begin with /dev."""
    found = {}
    for major, minor in numbers:
        link = dev / "char" / f"{major}:{minor}"
        try:
            target = os.path.normpath(link.parent / link.readlink())
        except OSError:
            continue  # If it is missing, the check reports it.
        found[major, minor] = f"/dev{target.removeprefix(str(dev))}" if target.startswith(str(dev)) else target
    return found


def _expected(view: NodeView) -> list[ExpectedFile]:
    sysfs = view.facts().sysfs
    capabilities = (
        [each.minor for each in sysfs.nvidia_capabilities if "/mig/" in each.path] if sysfs is not None else []
    )
    return expected_files(read_gpu_minors(view.proc), capabilities, read_majors(view.proc))


def _loaded(view: NodeView) -> bool:
    sysfs = view.facts().sysfs
    return sysfs is not None and sysfs.nvidia_module_version is not None


def _files(view: NodeView) -> CheckFinding:
    if not _loaded(view):
        return skipped(_NO_DRIVER)
    expected = _expected(view)
    return judge_files(expected, read_files(view.dev, [each.name for each in expected], view.stat))


def _links(view: NodeView) -> CheckFinding:
    if not _loaded(view):
        return skipped(_NO_DRIVER)
    found = read_files(view.dev, [each.name for each in _expected(view)], view.stat)
    numbers = {name: file.numbers for name, file in found.items() if file.numbers is not None}
    return judge_links(numbers, read_links(view.dev, numbers.values()))


CHECKS = (
    Check(
        "nvidia-device-files",
        "NVIDIA's device files (control, GPUs, UVM, MIG) exist, have the driver's numbers and are open to all",
        "Run `nvidia-modprobe -c 0 -u`; set `NVreg_DeviceFileMode=0666`",
        _files,
        hardware=True,
    ),
    Check(
        "nvidia-char-links",
        "`/dev/char/MAJOR:MINOR` links to each; otherwise containers lose their GPUs at `systemctl daemon-reload`",
        "Run `nvidia-ctk system create-dev-char-symlinks --create-all` at every boot",
        _links,
        hardware=True,
    ),
)


FILE = "etc/nvidia-container-runtime/config.toml"
_INSTALL = "install nvidia-container-toolkit and run 'nvidia-ctk runtime configure', or use the strategy cdi-cri"


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """How NVIDIA's runtime lets a container request GPUs: ``variable`` without privilege, ``mounts``."""

    variable: bool = True
    mounts: bool = False


def judge_runtime_options(
    strategies: frozenset[ListStrategy], runtime: Runtime | None, options: RuntimeOptions | None, *, specs: bool
) -> CheckFinding:
    """Whether named devices reach the containers of the pods that have them, and no others.

    ``specs``: device nodes are part of the answers as well, so that containers get those in any case.
    """
    if not strategies:
        return skipped("no rule passes NVIDIA GPUs by variable or mount")
    if runtime is None or runtime.fault:
        return skipped("no configuration of containerd or CRI-O can be seen from here")
    named = runtime.runtimes_with("nvidia")
    if not named:
        lack = "containers get device nodes and not the driver's libraries" if specs else "containers get no devices"
        return warning(
            f"{runtime.file} has no NVIDIA runtime, which the strategy {_words(strategies)} needs: {lack}", _INSTALL
        )
    if options is not None and ListStrategy.VOLUME_MOUNTS in strategies and not options.mounts:
        return failed(
            f"/{FILE} does not accept devices as volume mounts",
            "set accept-nvidia-visible-devices-as-volume-mounts = true there",
        )
    if options is not None and options.variable:
        return warning(
            f"/{FILE} lets every image request all GPUs by an environment variable",
            "set accept-nvidia-visible-devices-envvar-when-unprivileged = false there and use another strategy:"
            " volume-mounts or cdi-cri",
        )
    if runtime.default_runtime not in named:
        return ok(
            f"{several(list(named))}; pods need a runtimeClassName with it, the default is {runtime.default_runtime}"
        )
    return ok(f"{runtime.default_runtime} is the default of {runtime.name}")


def _words(strategies: frozenset[ListStrategy]) -> str:
    return " and ".join(sorted(strategies))


def strategies_of(rules: Iterable[Rule]) -> tuple[frozenset[ListStrategy], bool]:
    """Strategies of GPU rules that need NVIDIA's runtime; whether those rules also pass device nodes."""
    kinds = (DeviceKind.GPU, DeviceKind.MIG)
    given = [
        rule.edits
        for rule in rules
        if rule.door.has(Door.PLUGIN)
        and (not rule.selector.kinds or any(kind in rule.selector.kinds for kind in kinds))
        and (not rule.selector.vendors or "nvidia" in rule.selector.vendors)
    ]
    needing = [edits for edits in given if any(not strategy.uses_cdi for strategy in edits.strategies)]
    strategies = frozenset(each for edits in needing for each in edits.strategies if not each.uses_cdi)
    return strategies, all(edits.gives_device_specs for edits in needing)


def read_options(host: Path) -> RuntimeOptions | None:
    """The options of NVIDIA's runtime; None if its file is missing. Raises OSError, ValueError."""
    try:
        table = read_toml(host / FILE)
    except FileNotFoundError:
        return None
    return RuntimeOptions(
        table.get("accept-nvidia-visible-devices-envvar-when-unprivileged", True) is True,
        table.get("accept-nvidia-visible-devices-as-volume-mounts", False) is True,
    )


def _runtime(view: NodeView) -> CheckFinding:
    if not view.gpu_functions(VENDOR):
        return skipped(NO_GPU)
    strategies, specs = strategies_of(view.settings.rules)
    return judge_runtime_options(strategies, find_runtime(view.host), read_options(view.host), specs=specs)


RUNTIME_CHECK = Check(
    "nvidia-runtime",
    "If rules pass GPUs by variable or mount, the node has NVIDIA's runtime, and it gives pods only their own",
    "Run `nvidia-ctk runtime configure`, or use the strategy `cdi-cri`",
    _runtime,
    hardware=True,
)
