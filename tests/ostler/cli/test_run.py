"""What ``ostler run`` refuses before it begins, and at a reload."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFIG = """\
apiVersion: ostler.dev/v1alpha1
kind: Config
resources:
  - {name: nvidia.com/gpu, door: dra, devices: {kind: gpu}}
"""
MISSING = (
    "nodeName: is not given, but a resource has door dra; start the agent with --node-name NAME, in a pod with "
    "OSTLER_NODE_NAME from spec.nodeName\n"
)


def ostler(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ostler", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def test_claims_are_not_served_without_the_nodes_name(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    done = ostler("run", "--config", str(path), "--state-dir", str(tmp_path / "state"))
    assert (done.returncode, done.stderr) == (3, f"ostler: the configuration is not usable\n{MISSING}")


def test_a_check_of_the_file_alone_remarks_on_it(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    done = ostler("config", "check", str(path))
    assert done.returncode == 0
    assert "nodeName: is not set, but 'ostler run' needs it, because a resource has door dra" in done.stdout
