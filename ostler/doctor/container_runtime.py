"""The container runtime according to its configuration files, and checks of CDI: no process is asked or started.

For containerd and CRI-O, the files of the plain packages and those of k3s, rke2, k0s and microk8s are read.
containerd's ``imports`` are followed, later files over earlier ones, as containerd does; a containerd whose CRI plugin
is disabled (Docker's package ships it so) serves no kubelet and is ignored. A value that a file leaves out has the
runtime's default; if that depends on a version that files do not name, the value is None.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from node.edits.options import CdiMode, EditOptions, by_cdi
from node.inventory.facts import CdiFacts
from node.rules import Door, Rule
from ostler.doctor.check import Check, CheckFinding, CheckSubject, failed, ok, several, skipped, warning
from ostler.doctor.node import NodeView
from ostler.doctor.reading import read_toml

CONTAINERD_FILES = (
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "run/k0s/containerd-cri.toml",
    "etc/k0s/containerd.toml",
    "var/snap/microk8s/current/args/containerd.toml",
    "etc/containerd/config.toml",
)
"""Distributions' files come first: beside them the plain file belongs to another containerd, such as Docker's."""
CRIO_FILE, CRIO_FOLDER = "etc/crio/crio.conf", "etc/crio/crio.conf.d"
DEFAULT_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
"""Where both runtimes look for CDI specs by default."""
_SECTIONS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
"""Names of the CRI plugin's section in versions 3, 2 and 1 of containerd's configuration."""
_CDI_BY_DEFAULT = 3
"""The version of the configuration that only containerd 2 has, where CDI is on by default."""

Table = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Runtime:
    """``cdi``: whether CDI is on, None where the version decides. ``directories``: where the runtime reads specs.

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
        """Runtimes whose name, or whose program's name, contains the word."""
        return tuple(name for name, program in self.runtimes if word in name or word in program.rpartition("/")[2])


def find_runtime(host: Path) -> Runtime | None:
    """The runtime whose configuration is below ``host``; None if none is visible."""
    for place in CONTAINERD_FILES:
        if os.path.exists(host / place):  # noqa: PTH110 - False for what this user may not see
            found = _containerd(host, host / place)
            if found is not None:
                return found
    crio = [host / CRIO_FILE, *sorted((host / CRIO_FOLDER).glob("*"))]
    files = [file for file in crio if os.path.isfile(file)]  # noqa: PTH113 - as above
    return _crio(files) if files else None


def _containerd(host: Path, file: Path) -> Runtime | None:
    """None if this containerd runs no pods."""
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
    """The file and its imports; later ones override earlier ones. Raises OSError, ValueError."""
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
    """Files that an import names; folders may contain wildcards as well."""
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
        cdi=True,  # It cannot be turned off, only left without folders.
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


_UNUSED = "no rule passes devices by CDI"


def judge_runtime(runtime: Runtime | None, directory: str, *, used: bool) -> CheckFinding:
    """Whether the runtime reads the folder of ostler's specs. ``used``: a rule passes devices by CDI."""
    if not used:
        return skipped(_UNUSED)
    if runtime is None:
        return skipped("no configuration of containerd or CRI-O can be seen from here")
    if runtime.fault:
        return warning(f"{runtime.file} cannot be read: {runtime.fault}", "correct the runtime's configuration")
    if runtime.cdi is False:
        fix = f"set enable_cdi = true in {runtime.file} and restart containerd"
        return failed(f"CDI is off in {runtime.file}: pods get no devices", fix)
    if _plain(directory) not in {_plain(each) for each in runtime.directories}:
        known = several(list(runtime.directories)) or "none"
        return failed(
            f"{runtime.name} does not look for CDI specs in {directory} (only: {known})",
            f"add it to cdi_spec_dirs in {runtime.file}, or set cdi.directory to one of those",
        )
    if runtime.cdi is None:
        found = f"{runtime.file} does not set enable_cdi, so that CDI is off in containerd before 2.0"
        return warning(found, "set enable_cdi = true in the section of the CRI plugin and restart containerd")
    return ok(f"{runtime.name} looks for CDI specs in {directory}")


def _plain(directory: str) -> str:
    """The folder with links resolved: /var/run is /run."""
    path = os.path.normpath(directory)
    return path.removeprefix("/var") if path.startswith("/var/run/") else path


def judge_specs(facts: CdiFacts) -> CheckFinding:
    """Whether every spec in the folders is usable; a bad file loses all of its devices."""
    if facts.errors:
        fix = "correct or remove the named file; until then no pod gets its devices"
        return warning(several(list(facts.errors), 3), fix)
    return ok(f"{len(facts.devices)} devices in CDI specs, none defined twice")


def judge_hooks(edits: Iterable[EditOptions], present: frozenset[str], *, host_visible: bool) -> CheckFinding:
    """Whether the hooks that specs name exist. ``present``: those that do."""
    hooks = sorted({each.hook for each in edits if each.uses_cdi and each.cdi_mode is CdiMode.FULL and each.hook})
    if not hooks:
        return skipped("no CDI spec of ostler has a hook")
    if not host_visible:
        return skipped("the node's file system cannot be seen from here")
    missing = [hook for hook in hooks if hook not in present]
    if missing:
        return failed(
            f"{several(missing)} does not exist: containers with a GPU do not start",
            "install nvidia-container-toolkit-base",
        )
    return ok(several(hooks))


def _runtime(view: NodeView) -> CheckFinding:
    used = any(edits.uses_cdi for edits in _ways(view.settings.rules))
    return judge_runtime(find_runtime(view.host) if used else None, str(view.settings.cdi.directory), used=used)


def _specs(view: NodeView) -> CheckFinding:
    # Imported here: only this check needs it. No file is left out, because ours can be wrong as well.
    from node.inventory.cdi_specs import CdiSpecSource

    facts = CdiSpecSource(view.settings.cdi.directories).read().cdi
    return judge_specs(facts or CdiFacts())


def _hooks(view: NodeView) -> CheckFinding:
    edits = list(_ways(view.settings.rules))
    present = frozenset(each.hook for each in edits if each.hook and _executable(view.host, each.hook))
    return judge_hooks(edits, present, host_visible=not view.in_pod or view.host != Path("/"))


def _ways(rules: Iterable[Rule]) -> Iterator[EditOptions]:
    """How the rules pass devices, by door: the DRA door always uses CDI."""
    for rule in rules:
        if rule.door.has(Door.PLUGIN):
            yield rule.edits
        if rule.door.has(Door.DRA):
            yield by_cdi(rule.edits)


def _executable(host: Path, path: str) -> bool:
    return os.access(host / path.lstrip("/"), os.X_OK)


SUBJECT = CheckSubject(
    "cdi",
    (
        Check(
            "cdi-runtime",
            "If a rule passes devices by CDI, containerd or CRI-O has CDI on and reads ostler's folder",
            "Set `enable_cdi` and `cdi_spec_dirs` of the runtime, or `cdi.directory`",
            _runtime,
        ),
        Check(
            "cdi-specs",
            "Specs in the CDI folders can be read, and no device is defined twice",
            "Correct or remove the named file",
            _specs,
        ),
        Check(
            "cdi-hook",
            "The hook that ostler's CDI specs name (`--cdi-hook`) exists and is executable",
            "Install nvidia-container-toolkit-base, or correct the path",
            _hooks,
        ),
    ),
)
