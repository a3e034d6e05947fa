"""The container runtime as its configuration files describe it: containerd or CRI-O; no process is asked or started.

Read are the places of the plain packages and those of k3s, rke2, k0s and microk8s. containerd's ``imports`` are
followed, later files over earlier ones, as containerd does it; one whose CRI plugin is disabled (Docker's package ships
it so) serves no kubelet and is passed over. What a file leaves out has the runtime's default, which
may depend on a version that files do not tell; such a value is None.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ostler.doctor.reading import read_toml

CONTAINERD_FILES = (
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "run/k0s/containerd-cri.toml",
    "etc/k0s/containerd.toml",
    "var/snap/microk8s/current/args/containerd.toml",
    "etc/containerd/config.toml",
)
"""Distributions' own come first: beside them the plain one belongs to a containerd of others, such as Docker's."""
CRIO_FILE, CRIO_FOLDER = "etc/crio/crio.conf", "etc/crio/crio.conf.d"
DEFAULT_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
"""Where both runtimes look for CDI specs unless told otherwise."""
_SECTIONS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
"""Names of the CRI plugin's section in versions 3, 2 and 1 of containerd's configuration."""
_CDI_BY_DEFAULT = 3
"""The version of the configuration that only containerd 2 has, where CDI is on by default."""

Table = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Runtime:
    """``cdi``: whether CDI is on, None where the version decides. ``directories``: where specs are looked for.

    ``runtimes``: names of OCI runtimes with the program of each (may be empty); ``default_runtime``: the one of pods
    without a runtime class. ``fault``: why the file cannot be used.
    """

    name: str
    file: Path
    cdi: bool | None = None
    directories: tuple[str, ...] = DEFAULT_DIRECTORIES
    runtimes: tuple[tuple[str, str], ...] = ()
    default_runtime: str = ""
    fault: str = ""

    def runtimes_with(self, word: str) -> tuple[str, ...]:
        """Runtimes that have the word in their name or in that of their program."""
        return tuple(name for name, program in self.runtimes if word in name or word in program.rpartition("/")[2])


def find_runtime(host: Path) -> Runtime | None:
    """The runtime whose configuration lies below ``host``; None where there is none to be seen."""
    for place in CONTAINERD_FILES:
        if os.path.exists(host / place):  # noqa: PTH110 - False for what this user may not see
            found = _containerd(host, host / place)
            if found is not None:
                return found
    crio = [host / CRIO_FILE, *sorted((host / CRIO_FOLDER).glob("*"))]
    files = [file for file in crio if os.path.isfile(file)]  # noqa: PTH113 - as above
    return _crio(files) if files else None


def _containerd(host: Path, file: Path) -> Runtime | None:
    """None where it has nothing to do with pods."""
    try:
        tables = _with_imports(host, file)
    except (OSError, ValueError) as error:
        return Runtime("containerd", file, fault=" ".join(str(error).split()))
    disabled = [table.get("disabled_plugins") for table in tables]
    if any(section in names for names in disabled if isinstance(names, list) for section in _SECTIONS):
        return None
    version = 1
    merged: dict[str, object] = {}
    for table in tables:
        number = table.get("version")
        version = max(version, number) if isinstance(number, int) else version
        plugins = _table(table, "plugins")
        for section in _SECTIONS:
            _merge(merged, _table(plugins, section))
    return _runtime_of(file, version, merged)


def _runtime_of(file: Path, version: int, section: Table) -> Runtime:
    enabled, directories = section.get("enable_cdi"), section.get("cdi_spec_dirs")
    containerd = _table(section, "containerd")
    runtimes = _table(containerd, "runtimes")
    programs = tuple(
        (name, str(_table(_table(runtimes, name), "options").get("BinaryName", ""))) for name in sorted(runtimes)
    )
    return Runtime(
        "containerd",
        file,
        cdi=enabled if isinstance(enabled, bool) else True if version >= _CDI_BY_DEFAULT else None,
        directories=_texts(directories) if isinstance(directories, list) else DEFAULT_DIRECTORIES,
        runtimes=programs,
        default_runtime=str(containerd.get("default_runtime_name", "runc")),
    )


def _with_imports(host: Path, file: Path) -> list[Table]:
    """The file and what it imports, in the order in which later ones win. Raises OSError, ValueError."""
    found: list[Table] = []
    seen, waiting = {file}, [file]
    while waiting:
        current = waiting.pop(0)
        table = read_toml(current)
        found.append(table)
        imports = table.get("imports")
        for pattern in _texts(imports) if isinstance(imports, list) else ():
            named = [path for path in _matching(host, current.parent, pattern) if path not in seen]
            seen.update(named)
            waiting += named
    return found


def _matching(host: Path, folder: Path, pattern: str) -> list[Path]:
    """Files that an import names; folders may have wildcards, too."""
    base = host if pattern.startswith("/") else folder
    found = glob.glob(pattern.lstrip("/"), root_dir=base)  # noqa: PTH207 - Path.glob refuses an empty pattern
    return [base / name for name in sorted(found)]


def _crio(files: list[Path]) -> Runtime:
    merged: dict[str, object] = {}
    for file in files:
        try:
            _merge(merged, read_toml(file))
        except (OSError, ValueError) as error:
            return Runtime("CRI-O", file, fault=" ".join(str(error).split()))
    section = _table(_table(merged, "crio"), "runtime")
    directories = section.get("cdi_spec_dirs")
    runtimes = _table(section, "runtimes")
    return Runtime(
        "CRI-O",
        files[0],
        cdi=True,  # It cannot be switched off, only left without folders.
        directories=_texts(directories) if isinstance(directories, list) else DEFAULT_DIRECTORIES,
        runtimes=tuple((name, str(_table(runtimes, name).get("runtime_path", ""))) for name in sorted(runtimes)),
        default_runtime=str(section.get("default_runtime", "")),
    )


def _merge(into: dict[str, object], table: Table) -> None:
    for key, value in table.items():
        present = into.get(key)
        if isinstance(present, dict) and isinstance(value, Mapping):
            _merge(present, value)
        elif isinstance(value, Mapping):
            fresh: dict[str, object] = {}
            into[key] = fresh
            _merge(fresh, value)
        else:
            into[key] = value


def _table(table: Table, key: str) -> Table:
    value = table.get(key)
    return value if isinstance(value, Mapping) else {}


def _texts(values: list[object]) -> tuple[str, ...]:
    return tuple(str(value) for value in values)
