"""What holds for claims on one node, with the changes that help."""

from __future__ import annotations

from dataclasses import replace

from kube.bodies import JsonObject
from scheduling.explain.cluster import Cluster
from scheduling.explain.diagnosis import examine
from scheduling.explain.judge import Claims
from scheduling.explain.verdict import NodeFinding


def diagnose(claims: Claims, node: JsonObject, cluster: Cluster, *, remedy: bool = True) -> NodeFinding:
    finding, cures = examine(claims, node, cluster)
    return replace(finding, remedies=cures()) if remedy else finding
