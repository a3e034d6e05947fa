"""Scripts for ``ostler kubelet``: the manifests that they admit, and what runs them through the real command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ostler.cli.main import main
from tests.making import plain_plugin

Json = dict[str, Any]
PLAIN = (sys.executable, str(Path(plain_plugin.__file__)))
THING = "plain.example/thing"


def manifest(name: str, count: int = 1, resource: str = THING, **more: object) -> Json:
    """A pod whose one container asks for so many devices."""
    container = {"name": "main", "image": "none", "resources": {"limits": {resource: count}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **more}}


def asks_for_one(name: str, **more: object) -> Json:
    """A container that asks for one device."""
    return {"name": name, "image": "none", "resources": {"limits": {THING: 1}}, **more}


MANIFESTS: Mapping[str, Sequence[object]] = {
    "two": [manifest("two", 2)],
    "three": [manifest("three", 3)],
    "five": [manifest("five", 5)],
    "both": [manifest("one"), manifest("many", 9)],
    "other": [manifest("other", 1, "other.example/thing")],
    "early": [
        manifest("early", 2, initContainers=[asks_for_one("prepare"), asks_for_one("side", restartPolicy="Always")]),
    ],
    "claim": [manifest("claiming", resourceClaims=[{"name": "c", "resourceClaimName": "c"}])],
    "deployment": [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}],
    "resourceclaim": [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}],
    "list": [{"kind": "List", "items": [manifest("listed")]}],
    "badlist": [{"kind": "List", "items": 3}],
    "generated": [{**manifest(""), "metadata": {"generateName": "made-", "namespace": "team"}}],
    "nameless": [{**manifest(""), "metadata": {}}],
    "text": ["just text"],
    "empty": [None],
    "nocontainers": [{"kind": "Pod", "metadata": {"name": "hollow"}, "spec": {}}],
    "twins": [
        {
            "kind": "Pod",
            "metadata": {"name": "twins"},
            "spec": {"containers": [asks_for_one("a"), asks_for_one("a")]},
        }
    ],
    "half": [manifest("half", "500m")],  # type: ignore[arg-type]
}


def write_manifests(folder: Path) -> None:
    """Write each of ``MANIFESTS`` as a file."""
    for name, documents in MANIFESTS.items():
        (folder / f"{name}.yaml").write_text("\n---\n".join(json.dumps(each) for each in documents))


class KubeletScript:
    """Runs scripts through the real command line in this process."""

    def __init__(self, folder: Path, manifests: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._manifests = manifests
        self._capsys = capsys

    def run(self, *steps: str, options: Sequence[str] = (), command: Sequence[str] = PLAIN, code: int = 0) -> str:
        """What the steps print; ``{}`` in a step is the folder of manifests."""
        file = self._folder / "script"
        file.write_text("".join(f"{step}\n" for step in steps).replace("{}", str(self._manifests)))
        words = ["kubelet", "-f", str(file), *options, *(("--", *command) if command else ())]
        assert main(words) == code, self._capsys.readouterr()
        out, self.err = self._capsys.readouterr()
        return out.replace(str(self._manifests), "{}")

    def answers(self, *steps: str, options: Sequence[str] = (), **more: Any) -> list[Json]:
        """The answers as JSON."""
        out = self.run(*steps, options=("-o", "json", *options), **more)
        return [json.loads(line) for line in out.splitlines()]

    def problem(self, *steps: str, **more: Any) -> str:
        """The last line of the command's complaint, of which every step before the last has to succeed."""
        self.run(*steps, code=1, **more)
        said = self.err.rpartition("ostler: ")[2].strip()
        return said.replace(str(self._folder), "").replace(str(self._manifests), "{}")
