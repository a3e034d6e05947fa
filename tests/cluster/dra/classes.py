"""The device classes of the chart, without the rest of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from deploy.generate import CHART
from tests.cluster.components.build import tools
from tests.cluster.components.versions import newest
from tests.cluster.rig.cluster import RigCluster


def manifests(*values: str) -> str:
    """The chart's device classes as YAML documents, with more ``values`` (``a.b=c``)."""
    # The chart does not read a text, so it does not ask for rules behind the names of resources.
    given = ("dra.enabled=true", "configText=none", *values)
    settings: list[str] = [word for value in given for word in ("--set", value)]
    command: list[str | Path] = [tools() / "helm", "template", "ostler", CHART, "--kube-version", newest(), *settings]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = [one for one in yaml.safe_load_all(shown) if one and one["kind"] == "DeviceClass"]
    return yaml.safe_dump_all(found)


def apply_classes(cluster: RigCluster, *values: str) -> None:
    """Have them in the cluster."""
    cluster.kubectl("apply", "--server-side", "-f", "-", text=manifests(*values))


def remove_classes(cluster: RigCluster, *values: str) -> None:
    """Have them no longer."""
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", text=manifests(*values))
