"""Checks of MPS: the driver's programs, compute modes that keep pods out, and leftovers of a killed daemon."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from driver.claims.sharing import CLAIMS_RECORD
from node.documents import parse_json
from node.inventory.nvidia.compute_modes import DEFAULT, EXCLUSIVE_PROCESS, mode_name
from node.mps.daemon import MpsHome, find_program
from node.mps.modes import RECORD
from node.mps.processes import PROGRAM, find_process
from node.mps.storage import FULL, MpsStorage, folders_below
from node.opening import read_regular
from node.rules import Rule
from node.sharing import SharingStrategy
from ostler.doctor.check import Check, CheckFinding, failed, joined, ok, several, skipped, warning
from ostler.doctor.node import NodeView
from ostler.doctor.nvml import quiet
from ostler.doctor.nvml_process import NVML_TIMEOUT

_NOT_SHARED = "no rule shares GPUs by MPS"
_MOST = 1 << 20
"""Bytes of the record that are read."""


def shares_by_mps(rules: Iterable[Rule]) -> bool:
    """Whether a rule shares GPUs by MPS."""
    return any(rule.sharing is not None and rule.sharing.strategy is SharingStrategy.MPS for rule in rules)


def judge_program(program: Path | None, driver_root: Path) -> CheckFinding:
    """Whether the driver has the control daemon's program."""
    if program is None:
        fix = "install the driver's compute utilities, or set nvidia.driverRoot"
        return failed(f"the driver in {driver_root} has no {PROGRAM}", fix)
    return ok(f"{program} is there")


def judge_storage(root: Path, storage: MpsStorage) -> CheckFinding:
    """Whether daemons get bounded file systems, and whether one is full; changes nothing."""
    if not root.is_dir():
        return warning(f"{root} does not exist; the agent makes it", "start the agent, then run this again")
    problem, _, fix = storage.hindrance().partition("; ")
    if problem:
        return failed(problem, fix)
    names = [name for name in storage.names() if storage.has(name)]
    findings = []
    for name in names:
        usage = storage.usage(name)
        if usage.ratio >= FULL:
            fix = f"restart the pod that fills it, or {usage.remedy}"
            findings.append(warning(f"the file system of the MPS daemon {name} is full ({usage})", fix))
    return joined(findings, f"what daemons and pods store below {root} is bounded; {len(names)} daemons have folders")


def judge_modes(modes: Mapping[str, int], taken: Mapping[str, int], *, running: bool) -> CheckFinding:
    """Whether a GPU's compute mode keeps processes out although no daemon needs that.

    ``taken``: the GPUs' modes before MPS, by UUID; ``running``: whether a daemon on record runs.
    """
    findings = []
    for uuid, mode in sorted(modes.items()):
        if mode == DEFAULT or (mode == EXCLUSIVE_PROCESS and uuid in taken and running):
            continue
        back = mode_name(taken.get(uuid, DEFAULT))
        whose = "MPS left it there" if uuid in taken else "pods with several processes fail on it"
        fix = f"run 'nvidia-smi -i {uuid} -c {back}'"
        if uuid in taken:
            fix = f"start the agent, which sets it back, or {fix}"
        findings.append(warning(f"{uuid} is in compute mode {mode_name(mode)}: {whose}", fix))
    return joined(findings, f"{len(modes)} GPUs let every process in, or belong to a running daemon")


def judge_folders(folders: Sequence[str], running: frozenset[str], root: Path) -> CheckFinding:
    """Whether folders are left of daemons that do not run; ``folders``: the resources that have one."""
    left = [name for name in folders if name not in running]
    if left:
        fix = f"start the agent, which starts or removes them, or remove them below {root}"
        return warning(f"folders of MPS are left without a daemon: {several(left)}", fix)
    return ok(f"{len(folders)} resources have folders below {root}, each with its daemon")


def read_left(state: Path, proc: Path) -> tuple[Mapping[str, int], frozenset[str]]:
    """Read the records: compute modes before MPS by UUID, and the names of daemons that run.

    Read without the agent's reader, which sets a damaged file aside. Raises OSError and ValueError.
    """
    modes: dict[str, int] = {}
    running = set()
    for path in (state / CLAIMS_RECORD, state / RECORD):
        data = _data_of(path)
        modes.update(data.get("modes", {}))
        for name, (pid, started) in data.get("daemons", {}).items():
            process = find_process(pid, proc)
            if process is not None and process.started == started:
                running.add(name)
    return modes, frozenset(running)


def _data_of(path: Path) -> dict[str, Any]:
    try:
        data = parse_json(read_regular(path, _MOST))["data"]
    except FileNotFoundError:
        return {}
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a record of MPS") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not a record of MPS")  # noqa: TRY004 - as above
    return data


def _program(view: NodeView) -> CheckFinding:
    if not shares_by_mps(view.settings.rules):
        return skipped(_NOT_SHARED)
    nvidia = view.settings.nvidia
    return judge_program(find_program(nvidia.driver_root_mount), nvidia.driver_root_mount)


def _storage(view: NodeView) -> CheckFinding:
    if not shares_by_mps(view.settings.rules):
        return skipped(_NOT_SHARED)
    if os.geteuid() != 0:
        return skipped("only root can try to mount")
    nvidia = view.settings.nvidia
    root = Path(nvidia.mps_root)
    return judge_storage(root, MpsHome(root, size=nvidia.mps_size).storage)


def _modes(view: NodeView) -> CheckFinding:
    if (away := quiet(view)) is not None:
        return away
    answer = view.nvml()
    if not answer.modes:
        return skipped("no GPU reports its compute mode")
    taken, running = read_left(view.settings.state_dir, view.proc)
    return judge_modes(dict(answer.modes), taken, running=bool(running))


def _folders(view: NodeView) -> CheckFinding:
    root = Path(view.settings.nvidia.mps_root)
    folders = folders_below(root)
    if not folders:
        return skipped(f"MPS has no folders below {root}")
    _, running = read_left(view.settings.state_dir, view.proc)
    return judge_folders(folders, running, root)


CHECKS = (
    Check(
        "mps-program",
        "If rules share GPUs by MPS, the driver has its control program",
        "Install the driver's compute utilities, or set `nvidia.driverRoot`",
        _program,
        hardware=True,
    ),
    Check(
        "mps-file-system",
        "If rules share GPUs by MPS, daemons get file systems with limits that pods see, and none of them is full",
        "Let the agent mount below `nvidia.mpsRoot`, or mount a tmpfs with limits there; restart the pod that fills it",
        _storage,
        hardware=True,
    ),
    Check(
        "compute-mode",
        "GPUs are in compute mode DEFAULT, unless an MPS daemon of the agent serves them",
        "Run `nvidia-smi -c DEFAULT`, or start the agent, which restores them",
        _modes,
        hardware=True,
        deadline=NVML_TIMEOUT + 5,
    ),
    Check(
        "mps-folders",
        "No folder of pipes is left below `nvidia.mpsRoot` without its daemon",
        "Start the agent, or remove the folder",
        _folders,
        hardware=True,
    ),
)
