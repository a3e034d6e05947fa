"""A stub ``libnvidia-ml.so.1`` that serves described hardware to the real binding.

``build`` compiles it, ``describe`` turns recorded facts into its description, ``write`` puts a description where the
environment variable ``VARIABLE`` points to. A whole agent process runs against it with that variable in its
environment and the built file as its NVML library. Tests that use it carry ``pytestmark = stub.needs_gcc``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from node.inventory.facts import CallError, GpuFacts, MigFacts, MigProfile, NvLink, NvmlFacts

VARIABLE = "NVML_STUB_HARDWARE"
"""Not a name of ours, which the agent would take for a misspelt setting, and compare with all that there are."""
SONAME = "libnvidia-ml.so.1"
SOURCE = Path(__file__).parent / "nvml_stub.c"
"""Includes the other C files of its folder."""

needs_gcc = [
    pytest.mark.needs_gcc,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed: the stub NVML cannot be compiled"),
]

_FLAGS = ("-std=gnu11", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", f"-Wl,-soname,{SONAME}")
_REMOTE_TYPES = {"gpu": 0, "ibmnpu": 1, "switch": 2}
_ADDRESSING_MODES = {"None": 0, "HMM": 1, "ATS": 2}


def build(directory: Path, without: Sequence[str] = ()) -> Path:
    """Put the library into ``directory`` (made if missing), without the named C symbols; returns its path.

    Compiled once per source and symbol list, in a folder of this user's; processes may build at the same time. A
    library that lies there already is replaced by a new file, as an upgrade does it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / SONAME
    _atomically(target, lambda temporary: shutil.copyfile(_compiled(tuple(sorted(without))), temporary))
    return target


def write(path: Path, description: str) -> None:
    """Make this the description at ``path``, at once and whole."""
    _atomically(path, lambda temporary: temporary.write_text(description, encoding="utf-8"))


def describe(facts: NvmlFacts) -> str:
    """The description that makes the stub serve these facts; a status other than ``ok`` fails nvmlInit with it.

    A GPU with an error keeps handle, address and UUID if those are known, and fails every other call; without them
    it has no handle. Facts that are None are NOT_SUPPORTED unless the recorded errors say otherwise.
    """
    return "".join(f"{key} {value}\n" for key, value in _lines(facts))


def lost(index: int, error: str = "GPU_IS_LOST", answering: Sequence[str] = ()) -> str:
    """Lines that make every call on a GPU fail, but for those named in ``answering`` (binding's names)."""
    exempt = "".join(f"gpu{index}.error.{call} OK\n" for call in answering)
    return f"gpu{index}.error.* {error}\n{exempt}"


Line = tuple[str, object]


def _lines(facts: NvmlFacts) -> Iterator[Line]:
    if facts.status != "ok":
        yield "init", facts.status
    yield "count", len(facts.gpus)
    yield from _known(
        "",
        driver_version=facts.driver_version,
        nvml_version=facts.nvml_version,
        cuda_driver_version=facts.cuda_driver_version,
    )
    yield from _errors("", facts.errors)
    for gpu in facts.gpus:
        yield from _gpu(f"gpu{gpu.index}.", gpu, facts.mig_profiles(gpu.index))


def _gpu(prefix: str, gpu: GpuFacts, profiles: Sequence[MigProfile]) -> Iterator[Line]:
    capability = (gpu.compute_capability or "").split(".")
    addressing = None if gpu.addressing_mode is None else _ADDRESSING_MODES.get(gpu.addressing_mode)
    yield from _known(
        prefix,
        **{key: getattr(gpu, key) for key in _PLAIN},
        addressing_mode=gpu.addressing_mode if addressing is None else addressing,
        compute_major=capability[0] or None,
        compute_minor=capability[-1] or None,
    )
    if gpu.fabric is not None:
        yield f"{prefix}fabric.uuid", gpu.fabric.cluster_uuid.replace("-", "")
        yield f"{prefix}fabric.clique", gpu.fabric.clique_id
        yield f"{prefix}fabric.state", gpu.fabric.state
        yield f"{prefix}fabric.status", gpu.fabric.status
        yield from _known(
            f"{prefix}fabric.", health_mask=gpu.fabric.health_mask, health_summary=gpu.fabric.health_summary
        )
    if gpu.sram is not None:
        yield f"{prefix}sram.threshold_exceeded", int(gpu.sram.threshold_exceeded)
        yield f"{prefix}sram.volatile_secded", gpu.sram.volatile_uncorrectable
        yield f"{prefix}sram.aggregate_secded", gpu.sram.aggregate_uncorrectable
    for link in gpu.nvlinks:
        yield from _nvlink(f"{prefix}nvlink{link.link}.", link)
    for ancestor in gpu.ancestors:
        yield f"{prefix}ancestor.{ancestor.gpu}", ancestor.level
    yield from _profiles(prefix, profiles)
    for mig in gpu.mig_devices:
        yield from _mig(f"{prefix}mig{mig.index}.", mig)
    yield from _errors(prefix, gpu.errors)
    if gpu.error is not None:
        yield f"{prefix}error.*", gpu.error
        if gpu.bus_id is not None or gpu.uuid is not None:
            for call in ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPciInfo", "nvmlDeviceGetUUID"):
                yield f"{prefix}error.{call}", "OK"


_PLAIN = (
    "bus_id",
    "uuid",
    "name",
    "minor",
    "serial",
    "brand",
    "architecture",
    "memory_bytes",
    "module_id",
    "virtualization_mode",
    "ecc_mode",
    "vbios_version",
    "board_part_number",
    "remapped_rows_pending",
    "remapped_rows_failed",
    "mig_mode",
    "mig_pending",
    "mig_max_devices",
)


def _nvlink(prefix: str, link: NvLink) -> Iterator[Line]:
    yield f"{prefix}active", int(link.active)
    yield from _known(prefix, remote_bus_id=link.remote_bus_id)
    if link.active:
        yield f"{prefix}remote_type", _REMOTE_TYPES.get(link.remote_type or "", 255)


def _profiles(prefix: str, profiles: Sequence[MigProfile]) -> Iterator[Line]:
    placements: dict[int, list[str]] = {}
    for profile in profiles:
        key = f"{prefix}profile{profile.index}."
        names = (name for name in MigProfile.__dataclass_fields__ if name not in ("index", "size", "starts"))
        yield from _known(key, **{name: getattr(profile, name) for name in names})
        # A profile with placements of two sizes is two facts and one profile of the driver.
        placements.setdefault(profile.index, []).extend(f"{start}:{profile.size}" for start in profile.starts)
    for index, each in placements.items():
        yield f"{prefix}profile{index}.placements", ",".join(each)


def _mig(prefix: str, mig: MigFacts) -> Iterator[Line]:
    # The key that makes the device exist even when nothing of it is known.
    yield f"{prefix}exists", 1
    names = (name for name in MigFacts.__dataclass_fields__ if name not in ("index", "errors"))
    yield from _known(prefix, **{name: getattr(mig, name) for name in names})
    yield from _errors(prefix, mig.errors)


def _known(prefix: str, **values: object) -> Iterator[Line]:
    for key, value in values.items():
        if value is not None:
            yield prefix + key, int(value) if isinstance(value, bool) else value


def _errors(prefix: str, errors: Sequence[CallError]) -> Iterator[Line]:
    for error in errors:
        yield f"{prefix}error.{error.call}", error.error


def _compiled(without: tuple[str, ...]) -> Path:
    """The library in the cache; a symbol that shall be missing is compiled under another name."""
    sources = [file.read_bytes() for file in sorted(SOURCE.parent.glob("*.c"))]
    key = hashlib.sha256(repr((sources, _FLAGS, without)).encode()).hexdigest()[:24]
    cache = Path(tempfile.gettempdir()) / f"ostler-nvml-stub-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise PermissionError(f"{cache} belongs to another user; remove it or set TMPDIR")
    built = cache / f"{key}.so"
    if not built.exists():
        renamed = [f"-D{symbol}=absent_{symbol}" for symbol in without]
        _atomically(built, lambda to: subprocess.run(["gcc", *_FLAGS, *renamed, "-o", to, SOURCE], check=True))
    return built


def _atomically(target: Path, make: Callable[[Path], object]) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        make(temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
