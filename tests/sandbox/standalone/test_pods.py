"""Pods of manifests on the standalone node: those that wait, and are tried again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.standalone.node import StandaloneNode
from sandbox.standalone.pods import PodRefused
from sandbox.standalone.settings import StandaloneSettings
from tests.making.kubelet_scripts import manifest
from tests.making.namespaces import needs_namespaces
from tests.sandbox.kubelet.scripted_plugin import PluginScript, ScriptedPlugin, devices, register

RESOURCE = "a.example/b"


class _Nowhere:
    """A console that shows nothing."""

    def aside(self, source: str, text: str) -> None:
        """See ``Console``."""


@needs_namespaces
async def test_pod_whose_container_cannot_start_is_tried_again(short_dir: Path) -> None:
    script = PluginScript(pre_start_required=True, pre_start="error")
    settings = StandaloneSettings(root=short_dir / "k", command=("sleep", "600"))
    async with StandaloneNode(settings, _Nowhere()) as node:
        plugin = ScriptedPlugin(RESOURCE, node.folder / "device-plugins" / "p.sock", devices("d", 1), script)
        await plugin.start()
        try:
            assert await register(node.folder / "device-plugins", RESOURCE, "p.sock") == ""
            await node.kubelet.wait_for(RESOURCE, healthy=1)
            waiting = await node.pods.admit(manifest("p", resource=RESOURCE))
            assert waiting is not None
            assert waiting.phase == "Pending"
            assert waiting.message.startswith("device plugin PreStartContainer rpc failed with err: ")
            script.pre_start = "ok"
            unresolved = await node.pods.retry("p")
            assert (unresolved.phase, unresolved.message) == (
                "Pending",
                "CDI device injection failed: unresolvable CDI devices v.example/b=d0",
            )
            device = {"name": "d0", "containerEdits": {"env": ["A=1"]}}
            spec = {"cdiVersion": "0.6.0", "kind": "v.example/b", "devices": [device]}
            (node.cdi / "spec.json").write_text(json.dumps(spec))
            running = await node.pods.retry("p")
            assert running.phase == "Running", running
            assert running.containers["main"]["injected"] == {"env": ["A=1"]}
            assert node.pods.outcomes == {("default", "p"): running}
            await node.pods.delete("p")
            with pytest.raises(PodRefused, match=r"^there is no pod p; pods: none$"):
                await node.pods.retry("p")
        finally:
            await plugin.stop()
