"""An agent in this process, which is at the kubelet below a folder."""

from __future__ import annotations

from pathlib import Path

from node.inventory.recordings.source import RecordedSource
from ostler.agent.agent import Agent
from ostler.agent.edges import Edges, Notifier
from ostler.config.load import load
from ostler.config.settings import Settings
from sandbox.nodes import path


def settings(root: Path) -> Settings:
    flags = {
        "--kubelet-device-plugin-dir": str(root / "device-plugins"),
        "--kubelet-registry-dir": str(root / "plugins_registry"),
        "--state-dir": str(root / "state"),
        "--socket": str(root / "run" / "ostler.sock"),
        "--http": "off",
    }
    return load(None, flags, {}).settings


def agent(root: Path, name: str = "h100-sxm-8") -> Agent:
    """An agent on this recorded node."""
    return Agent(settings(root), [RecordedSource(path(name))], lambda: settings(root), Edges(notifier=Notifier({})))
