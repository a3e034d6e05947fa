"""Checks of CDI: the runtime knows our folder, specs are right, and the hook is there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from driver.devices.view import by_cdi
from node.edits.options import CdiMode, EditOptions
from node.inventory.facts import CdiFacts
from node.rules import Door, Rule
from ostler.doctor.check import Check, Subject
from ostler.doctor.container_runtime import Runtime, find_runtime
from ostler.doctor.node import NodeView
from ostler.doctor.verdict import Finding, failed, ok, several, skipped, warning

_UNUSED = "no rule gives devices by CDI"


def judge_runtime(runtime: Runtime | None, directory: str, *, used: bool) -> Finding:
    """Whether the runtime reads the folder that we write specs to. ``used``: a rule gives devices by CDI."""
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
        found = f"{runtime.file} does not say enable_cdi, which containerd before 2.0 takes for off"
        return warning(found, "set enable_cdi = true in the section of the CRI plugin and restart containerd")
    return ok(f"{runtime.name} looks for CDI specs in {directory}")


def _plain(directory: str) -> str:
    """The folder as it really is: /var/run is /run."""
    path = os.path.normpath(directory)
    return path.removeprefix("/var") if path.startswith("/var/run/") else path


def judge_specs(facts: CdiFacts) -> Finding:
    """Whether every spec in the folders can be used; a bad file costs all of its devices."""
    if facts.errors:
        fix = "correct or remove the file that is named; its devices are given to nobody until then"
        return warning(several(list(facts.errors), 3), fix)
    return ok(f"{len(facts.devices)} devices in CDI specs, none defined twice")


def judge_hooks(edits: Iterable[EditOptions], present: frozenset[str], *, host_visible: bool) -> Finding:
    """Whether the hook that specs name is there. ``present``: those hooks that are."""
    hooks = sorted({each.hook for each in edits if each.uses_cdi and each.cdi_mode is CdiMode.FULL and each.hook})
    if not hooks:
        return skipped("no CDI spec of ours has a hook")
    if not host_visible:
        return skipped("the node's file system cannot be seen from here")
    missing = [hook for hook in hooks if hook not in present]
    if missing:
        return failed(
            f"{several(missing)} is not there: containers with a GPU do not start",
            "install nvidia-container-toolkit-base",
        )
    return ok(several(hooks))


def _runtime(view: NodeView) -> Finding:
    used = any(edits.uses_cdi for edits in _ways(view.settings.rules))
    return judge_runtime(find_runtime(view.host) if used else None, str(view.settings.cdi.directory), used=used)


def _specs(view: NodeView) -> Finding:
    # Here and not above: only this check needs it. No file is left out, ours can be wrong as well.
    from node.inventory.cdi_specs import CdiSpecSource

    facts = CdiSpecSource(view.settings.cdi.directories).read().cdi
    return judge_specs(facts or CdiFacts())


def _hooks(view: NodeView) -> Finding:
    edits = list(_ways(view.settings.rules))
    present = frozenset(each.hook for each in edits if each.hook and _executable(view.host, each.hook))
    return judge_hooks(edits, present, host_visible=not view.in_pod or view.host != Path("/"))


def _ways(rules: Iterable[Rule]) -> Iterator[EditOptions]:
    """How the rules give devices, door by door: through the DRA door all is by CDI."""
    for rule in rules:
        if rule.door.has(Door.PLUGIN):
            yield rule.edits
        if rule.door.has(Door.DRA):
            yield by_cdi(rule.edits)


def _executable(host: Path, path: str) -> bool:
    return os.access(host / path.lstrip("/"), os.X_OK)


SUBJECT = Subject(
    "cdi",
    (
        Check(
            "cdi-runtime",
            "containerd or CRI-O has CDI on and looks into our folder, where a rule gives devices by CDI",
            "Set `enable_cdi` and `cdi_spec_dirs` of the runtime, or `cdi.directory`",
            _runtime,
        ),
        Check(
            "cdi-specs",
            "Specs in the CDI folders can be read, and no device is defined twice",
            "Correct or remove the file that is named",
            _specs,
        ),
        Check(
            "cdi-hook",
            "The hook that our specs name (`--cdi-hook`) is there and can be run",
            "Install nvidia-container-toolkit-base, or correct the path",
            _hooks,
        ),
    ),
)
