"""Workloads and AdmissionChecks of Kueue, as its API has them."""

from __future__ import annotations

import json
from typing import Any

Body = dict[str, Any]
API = "kueue.x-k8s.io/v1beta2"
ENABLE = "hivedscheduler.microsoft.com/pod-scheduling-enable"
SPEC = "hivedscheduler.microsoft.com/pod-scheduling-spec"
CHECK = "cells"


def pod_set(name: str = "main", count: int = 1, leaves: int = 8, *, wants_cells: bool = True, **spec: Any) -> Body:
    """Pods of one template; ``spec``: keys of the annotation."""
    asked = {"virtualCluster": "A", "priority": 0, "leafCellNumber": leaves, **spec}
    limits = {ENABLE: "1"} if wants_cells else {"cpu": "1"}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    annotations = {SPEC: json.dumps(asked)} if wants_cells else {}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": containers}}
    return {"name": name, "count": count, "template": template}


def workload(name: str = "train", *pod_sets: Body, state: str = "Pending", has_quota: bool = True, **more: Any) -> Body:
    """A Workload whose check is in that state; ``more``: ``conditions``, ``check``, ``counts``, ``active``."""
    sets = list(pod_sets) or [pod_set()]
    conditions = {"QuotaReserved": has_quota, **more.get("conditions", {})}
    counts = more.get("counts", {})
    assigned = [{"name": each["name"], "count": counts.get(each["name"], each["count"])} for each in sets]
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"podSets": sets, "active": more.get("active", True)},
        "status": {
            "conditions": [{"type": key, "status": str(value)} for key, value in conditions.items()],
            "admission": {"clusterQueue": "queue", "podSetAssignments": assigned} if has_quota else None,
            "admissionChecks": [{"name": CHECK, "state": state, "message": "", **more.get("check", {})}],
        },
    }


def admission_check(name: str = CHECK, controller: str = "ostler.dev/cells", **spec: Any) -> Body:
    """An AdmissionCheck."""
    return {
        "apiVersion": API,
        "kind": "AdmissionCheck",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"controllerName": controller, **spec},
    }
