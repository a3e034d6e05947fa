"""Checks of NVIDIA's device files: there, with the driver's numbers, open to containers, and found by number.

Numbers: major 195 is NVIDIA's own, /proc/devices has those that are given at load time. Containers get device files
themselves (not copies), so what is wrong here is wrong in every container.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from node.inventory.sysfs.device_files import StatDevice
from ostler.doctor.check import Check
from ostler.doctor.node import NodeView
from ostler.doctor.nvidia_driver import RECORDED
from ostler.doctor.reading import text_of
from ostler.doctor.verdict import Finding, failed, joined, ok, several, skipped, warning

_MAJOR = 195
_CONTROL_MINOR = 255
_NO_DRIVER = "NVIDIA's kernel module is not loaded"
_MAKE = "run 'nvidia-modprobe -c 0 -u' (once per boot; nvidia-persistenced does it, too)"
_LINKS = "run 'nvidia-ctk system create-dev-char-symlinks --create-all' at every boot"
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
_ALL_RW = 0o666


@dataclass(frozen=True, slots=True)
class Expected:
    """A device file that should be there: path below /dev, numbers (major None where the driver does not tell it).

    ``needed``: nothing works without it; the others are made by the driver's tools when first used.
    """

    name: str
    major: int | None
    minor: int
    needed: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What lies at a path: numbers, None for something that is no character device; and its permission bits."""

    numbers: tuple[int, int] | None
    mode: int


def expected_files(
    gpu_minors: Iterable[int], capability_minors: Iterable[int], majors: Mapping[str, int]
) -> list[Expected]:
    """The files of these GPUs and MIG instances; ``majors`` as /proc/devices has them."""
    frontend = majors.get("nvidia", majors.get("nvidia-frontend", _MAJOR))
    uvm, caps = majors.get("nvidia-uvm"), majors.get("nvidia-caps")
    files = [Expected("nvidiactl", majors.get("nvidiactl", frontend), _CONTROL_MINOR, needed=True)]
    files += [Expected(f"nvidia{minor}", frontend, minor, needed=True) for minor in sorted(gpu_minors)]
    files += [Expected("nvidia-uvm", uvm, 0, needed=False), Expected("nvidia-uvm-tools", uvm, 1, needed=False)]
    return files + [
        Expected(f"nvidia-caps/nvidia-cap{minor}", caps, minor, needed=False) for minor in sorted(capability_minors)
    ]


def judge_files(expected: Iterable[Expected], found: Mapping[str, Found]) -> Finding:
    """Whether every file is there and right. ``found``: by name; what is missing is left out."""
    expected = list(expected)
    findings = [finding for each in expected if (finding := _judge_file(each, found.get(each.name))) is not None]
    return joined(findings, f"{len(expected)} files are there, with the driver's numbers")


def _judge_file(expected: Expected, found: Found | None) -> Finding | None:
    path = f"/dev/{expected.name}"
    if found is None:
        if expected.needed:
            return failed(f"{path} is missing", _MAKE)
        return warning(f"{path} is missing", _MAKE)
    if found.numbers is None:
        return failed(f"{path} is no device file", f"remove what lies there, then {_MAKE}")
    if found.numbers[1] != expected.minor or (expected.major is not None and found.numbers[0] != expected.major):
        major = "?" if expected.major is None else expected.major
        wrong = (
            f"{path} has the numbers {found.numbers[0]}:{found.numbers[1]}, the driver's are {major}:{expected.minor}"
        )
        return failed(wrong, f"remove it, then {_MAKE}")
    if not expected.name.startswith("nvidia-caps/") and found.mode & _ALL_RW != _ALL_RW:
        told = f"{path} has mode {found.mode:04o}: containers that do not run as root cannot open it"
        return warning(told, "give the module NVreg_DeviceFileMode=0666 (options nvidia in /etc/modprobe.d)")
    return None


def judge_links(files: Mapping[str, tuple[int, int]], targets: Mapping[tuple[int, int], str]) -> Finding:
    """Whether device files can be found by number. ``targets``: where /dev/char/MAJOR:MINOR points to, by numbers."""
    if not files:
        return skipped("there is no NVIDIA device file")
    missing = [name for name, numbers in sorted(files.items()) if numbers not in targets]
    wrong = [
        name for name, numbers in sorted(files.items()) if numbers in targets and targets[numbers] != f"/dev/{name}"
    ]
    if missing or wrong:
        found = f"/dev/char has no right link for {several(missing + wrong, 3)}: with systemd's cgroup driver"
        return warning(f"{found} containers lose their GPUs at 'systemctl daemon-reload'", _LINKS)
    return ok(f"{len(files)} links are there")


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


def read_files(dev: Path, names: Iterable[str], stat: StatDevice) -> dict[str, Found]:
    """What lies below ``dev`` under these names."""
    found = {}
    for name in names:
        path = str(dev / name)
        try:
            numbers = stat(path)
            mode = os.lstat(path).st_mode & 0o7777
        except OSError:
            continue  # Missing, or hidden; the reader sees that it is not there.
        found[name] = Found(numbers[1:] if numbers is not None and numbers[0] == "c" else None, mode)
    return found


def read_links(dev: Path, numbers: Iterable[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """Where the links below ``dev``/char lead to, as paths that begin with /dev."""
    found = {}
    for major, minor in numbers:
        link = dev / "char" / f"{major}:{minor}"
        try:
            target = os.path.normpath(link.parent / link.readlink())
        except OSError:
            continue  # Missing, which is what is looked for.
        found[major, minor] = f"/dev{target.removeprefix(str(dev))}" if target.startswith(str(dev)) else target
    return found


def _expected(view: NodeView) -> list[Expected]:
    sysfs = view.facts().sysfs
    capabilities = (
        [each.minor for each in sysfs.nvidia_capabilities if "/mig/" in each.path] if sysfs is not None else []
    )
    return expected_files(read_gpu_minors(view.proc), capabilities, read_majors(view.proc))


def _loaded(view: NodeView) -> bool:
    sysfs = view.facts().sysfs
    return sysfs is not None and sysfs.nvidia_module_version is not None


def _files(view: NodeView) -> Finding:
    if view.recorded:
        return skipped(RECORDED)
    if not _loaded(view):
        return skipped(_NO_DRIVER)
    expected = _expected(view)
    return judge_files(expected, read_files(view.dev, [each.name for each in expected], view.stat))


def _links(view: NodeView) -> Finding:
    if view.recorded:
        return skipped(RECORDED)
    if not _loaded(view):
        return skipped(_NO_DRIVER)
    found = read_files(view.dev, [each.name for each in _expected(view)], view.stat)
    numbers = {name: file.numbers for name, file in found.items() if file.numbers is not None}
    return judge_links(numbers, read_links(view.dev, numbers.values()))


CHECKS = (
    Check(
        "nvidia-device-files",
        "NVIDIA's device files (control, GPUs, UVM, MIG) are there, with the driver's numbers and open to all",
        "Run `nvidia-modprobe -c 0 -u`; set `NVreg_DeviceFileMode=0666`",
        _files,
    ),
    Check(
        "nvidia-char-links",
        "`/dev/char/MAJOR:MINOR` links to each of them, or containers lose their GPUs at `systemctl daemon-reload`",
        "Run `nvidia-ctk system create-dev-char-symlinks --create-all` at every boot",
        _links,
    ),
)
