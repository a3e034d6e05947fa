"""Kubeconfigs as files, with users by token, certificate or plugin."""

from __future__ import annotations

import base64
import json
import stat
import sys
from pathlib import Path
from typing import Any

import yaml

from kube.access import Access
from kube.client import Client, RequestLimits
from tests.kube.server import AT_ONCE

SERVER = "https://10.0.0.1:6443"


def document(user: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "main", "user": "agent"}}],
        "clusters": [{"name": "main", "cluster": {"server": SERVER, **cluster}}],
        "users": [{"name": "agent", "user": user or {}}],
    }


def written(folder: Path, content: object) -> Path:
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def base64_of(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def ask(access: Access) -> None:
    Client(access, random=lambda: 0.5, policy=AT_ONCE, limits=RequestLimits(attempts=2)).get("/x")


def plugin(folder: Path, status: object, script: str = "") -> dict[str, Any]:
    """A credential plugin that counts its calls and answers ``status``."""
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    path = folder / "plugin"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"open({str(folder / 'calls')!r}, 'a').write('x')\n{script}\nprint({json.dumps(answer)!r})\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    # An empty list and no list are both written by others.
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "args": None, "env": None}}


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text())
