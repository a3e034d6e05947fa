"""The chart as people install it, with the image imported in place of pulled."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.generate import CHART, NAMESPACE
from tests.cluster.components.build import containerd, tools
from tests.cluster.rig.agent import RECORDED
from tests.cluster.rig.api import Object, RigApi, RigCredentials
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.processes import wait_until
from tests.deploy.image.build import NAME, image_archive

NEXT = "localhost/ostler:next"
"""The same image under another name, for updates."""
AGENTS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PATIENCE = "240s"
"""How long Helm waits for pods."""
OURS = "app.kubernetes.io/name=ostler"
KINDS = (
    "daemonsets.apps,configmaps,serviceaccounts,secrets,roles,rolebindings,clusterroles,clusterrolebindings,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings,deviceclasses"
)
"""Kinds of objects that the chart or Helm makes."""

Values = dict[str, Any]


def import_image(node: RigNode) -> None:
    """Make the image known to a node under both names."""
    ctr = (containerd() / "ctr", "-n", "k8s.io", "images")
    node.import_image(image_archive())
    node.run(*ctr, "tag", "--force", NAME, NEXT)


def recorded(name: str) -> Path:
    """The file of a recorded node, which the agents replay."""
    return RECORDED / f"{name}.yaml"


class Release:
    """A release in the chart's namespace; ``seconds`` is what the last call of Helm took, ``said`` its words."""

    def __init__(self, cluster: RigCluster, name: str = "ostler") -> None:
        self._cluster = cluster
        self._name = name
        self._helm = tools() / "helm"
        self.seconds = 0.0
        self.said = ""

    @property
    def api(self) -> RigApi:
        """The API server, asked as its administrator."""
        return self._cluster.api

    def install(self, recording: str = "", values: Values | None = None) -> None:
        """``helm install --wait``: the agents are ready by their probes."""
        self._apply("install", ("--create-namespace", "--wait"), recording, values)

    def upgrade(self, recording: str = "", values: Values | None = None, *, wait: bool = True) -> None:
        """``helm upgrade``, by default until the new agents are ready and the old ones gone."""
        self._apply("upgrade", ("--wait",) if wait else (), recording, values)
        if wait:
            self.agent()

    def rollback(self) -> None:
        """``helm rollback --wait`` to the revision before."""
        self._run("rollback", self._name, "--wait")
        self.agent()

    def uninstall(self) -> None:
        """``helm uninstall``, if it is installed; no agent of it is left afterwards."""
        self._run("uninstall", self._name, "--ignore-not-found")
        wait_until("the agents are gone", lambda: not self.own_agents())

    def agents(self) -> list[Object]:
        """The agents' pods, of whatever release."""
        return self.api.items(AGENTS)

    def own_agents(self) -> list[Object]:
        """The pods of this release's agents."""
        return self.api.items(f"{AGENTS}?labelSelector=app.kubernetes.io/instance={self._name}")

    def agent(self) -> Object:
        """The only agent's pod, as soon as there is one that is ready and no other."""
        found: list[Object] = []

        def is_alone() -> bool:
            found[:] = self.agents()
            return [ready(pod) for pod in found] == [True]

        wait_until("one agent is ready, and no other is there", is_alone)
        return found[0]

    def execute(self, *command: str, check: bool = True) -> str:
        """``kubectl exec`` in the only agent's pod."""
        name = self.agent()["metadata"]["name"]
        return self._cluster.kubectl("-n", NAMESPACE, "exec", name, "--", *command, check=check)

    def ask(self, *command: str) -> Any:
        """The JSON answer of an ``ostler`` command in the agent's pod."""
        return json.loads(self.execute("ostler", *command, "-o", "json"))

    def objects(self) -> list[str]:
        """Every object of the release, in any namespace, as ``kind/name``."""
        shown = self._cluster.kubectl("get", KINDS, "-A", "-l", OURS, "-o", "name")
        return sorted(shown.split())

    def token(self, node: RigNode) -> str:
        """The token that the agent itself has, from its pod's volume."""
        uid = self.agent()["metadata"]["uid"]
        return node.run(
            "sh", "-c", f"cat /var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~projected/kube-api-access-*/token"
        )

    def api_as(self, token: str) -> RigApi:
        """The API server, asked with a token."""
        return self._cluster.api_as(RigCredentials(token=token))

    def _apply(self, command: str, options: Sequence[str], recording: str, values: Values | None) -> None:
        repository, _, tag = NAME.partition(":")
        image = {"repository": repository, "tag": tag, "pullPolicy": "Never"}
        given = {"image": image, **(values or {})}
        given["image"] = {**image, **given["image"]}
        files = ("--set-file", f"recording={recorded(recording)}") if recording else ()
        self._run(command, self._name, str(CHART), "--values", "-", *options, *files, text=json.dumps(given))

    def _run(self, command: str, *arguments: str, text: str | None = None) -> None:
        began = time.monotonic()
        options = ("--namespace", NAMESPACE, "--timeout", PATIENCE)
        self.said = self._cluster.tool(self._helm, command, *arguments, *options, text=text)
        self.seconds = time.monotonic() - began


def ready(pod: Object) -> bool:
    """Whether a pod serves: ready and not about to end."""
    conditions = pod["status"].get("conditions", [])
    return "deletionTimestamp" not in pod["metadata"] and any(
        one["type"] == "Ready" and one["status"] == "True" for one in conditions
    )
