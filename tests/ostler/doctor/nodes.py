"""Nodes rendered as trees of files, and findings read by tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from node.inventory.sysfs.device_files import StatDevice, stat_device
from node.values import replace
from ostler.config.load import Loaded, load
from ostler.config.settings import CdiSettings, NvidiaSettings, RootSettings
from ostler.doctor.check import CheckFinding, CheckVerdict
from ostler.doctor.examination import SUBJECTS
from ostler.doctor.node import NodeView

CHECKS = {check.name: check for subject in SUBJECTS for check in subject.checks}
DEFAULTS = load(None, {}, {})


def view(
    root: Path,
    loaded: Loaded = DEFAULTS,
    *,
    environment: Mapping[str, str] | None = None,
    stat: StatDevice = stat_device,
    kubelet_health: str = "127.0.0.1:1",
    now: float = 1.8e9,
) -> NodeView:
    """The node below ``root``: sys, proc, host (etc, run, var, dev), kubelet and state."""
    for folder in ("sys/bus/pci/devices", "proc", "host/dev", "host/etc"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    settings = replace(
        loaded.settings,
        kubelet=replace(
            loaded.settings.kubelet,
            device_plugin_dir=root / "kubelet" / "device-plugins",
            registry_dir=root / "kubelet" / "plugins_registry",
        ),
        roots=RootSettings(root / "sys", root / "proc"),
        nvidia=NvidiaSettings(driver_root_mount=root / "host", dev_root_mount=root / "host"),
        cdi=CdiSettings((root / "etc-cdi", root / "cdi"), root / "cdi"),
        state_dir=root / "state",
        socket=root / "ostler.sock",
        http=None,
    )
    return NodeView(
        replace(loaded, settings=settings),
        host=root / "host",
        environment=environment or {},
        clock=lambda: now,
        pause=lambda _: None,
        stat=stat,
        kubelet_health=kubelet_health,
    )


def configured(text: str, folder: Path) -> Loaded:
    """What a configuration file with this text gives."""
    file = folder / "config.yaml"
    file.write_text(f"apiVersion: ostler.dev/v1alpha1\nkind: Config\n{text}")
    return load(file, {}, {})


def examined(node: NodeView, check: str) -> CheckFinding:
    """The finding of one check of the catalogue."""
    return CHECKS[check].finding(node)


def says(finding: CheckFinding, verdict: CheckVerdict | str, found: str, fix: str = "") -> None:
    """Assert verdict and texts; a finding without a fix is well or skipped, and no other is without one."""
    assert finding.verdict == verdict, finding
    assert found in finding.found, finding
    assert "\n" not in finding.found + finding.fix, "one line each"
    assert bool(finding.fix) is (finding.verdict in (CheckVerdict.WARNING, CheckVerdict.FAILED, CheckVerdict.ERROR)), (
        finding
    )
    assert fix in finding.fix, finding
    assert bool(fix) is bool(finding.fix), f"the fix is not read by this test: {finding.fix}"


def write(root: Path, files: Mapping[str, str]) -> None:
    """Files below ``root``, by their paths there."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
