"""Replays recorded scenarios (tests/vectors/hived) and shows decisions and states in the vectors' form."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from scheduling.cells.configuration import CellsConfigurationError, read_configuration
from scheduling.cells.decision import CellsUserError, Phase, PodPlaced, PodPreempting
from scheduling.cells.pod import (
    ANNOTATION_BIND_INFO,
    ANNOTATION_SPEC,
    BindInfo,
    CellPod,
    read_bind_info,
    read_pod_spec,
)
from scheduling.cells.scheduler import CellScheduler
from scheduling.cells.status import CellStatus

Json = dict[str, Any]


class ReplayRefused(Exception):
    """The scenario's configuration is refused."""


class Replay:
    """One scenario on one scheduler."""

    def __init__(self, scenario: Json) -> None:
        self.scenario = scenario
        self.bound: dict[str, BindInfo] = {}  # pod -> its record, also after a restart
        self.live: set[str] = set()
        self.config = scenario["config"]
        self.scheduler = self._start(self.config)

    def _start(self, config: Json) -> CellScheduler:
        self.config = config
        try:
            return CellScheduler(read_configuration(json.dumps(config), "config"))
        except CellsConfigurationError as error:
            raise ReplayRefused(str(error)) from error

    def pod(self, name: str) -> CellPod:
        told = self.scenario["pods"][name]
        annotations = {}
        if "annotation" in told:
            annotations = {ANNOTATION_SPEC: told["annotation"]}
        elif "spec" in told:
            annotations = {ANNOTATION_SPEC: json.dumps(told["spec"])}
        return CellPod(name, "default", name, read_pod_spec(annotations, "default", name))

    def step(self, event: Json) -> Json:
        """The decision of one event."""
        handlers: dict[str, Callable[[Json], Json]] = {
            "addNode": self._set_node,
            "updateNode": self._set_node,
            "deleteNode": self._delete_node,
            "filter": lambda told: self._schedule(told, Phase.FILTERING),
            "preempt": lambda told: self._schedule(told, Phase.PREEMPTING),
            "deletePod": self._delete_pod,
            "addBoundPod": self._add_bound_pod,
            "restart": self._restart,
            "inspectGroup": lambda told: ok(self.scheduler.group(told["group"])),
            "inspectVC": lambda told: ok(self.scheduler.virtual_cluster(told["vc"])),
        }
        try:
            return handlers[event["op"]](event)
        except CellsUserError as error:
            return {"kind": "userError", "code": error.code, "text": str(error)}

    def _set_node(self, event: Json) -> Json:
        self.scheduler.set_node(event["node"], healthy=event.get("healthy", True))
        return {"kind": "ok"}

    def _delete_node(self, event: Json) -> Json:
        self.scheduler.delete_node(event["node"])
        return {"kind": "ok"}

    def _nodes(self, event: Json) -> list[str]:
        if event["nodes"] != "*":
            return list(event["nodes"])
        return list(self.scheduler.state.leaves_by_node)

    def _schedule(self, event: Json, phase: Phase) -> Json:
        name = event["pod"]
        if name in self.live:
            return {"kind": "skip"}
        pod = self.pod(name)
        decision = self.scheduler.schedule(pod, self._nodes(event), phase)
        if isinstance(decision, PodPreempting):
            victims = {node: list(pods) for node, pods in decision.victims.items()}
            return {"kind": "preempt", "victimsByNode": victims, "victims": sum(map(len, victims.values()))}
        if not isinstance(decision, PodPlaced):
            return {"kind": "wait", "reason": decision.reason}
        info = decision.bind_info
        shown = {"kind": "free", "affinity": decision.affinity, "bindInfo": bind_info_json(info)}
        if phase is Phase.FILTERING:
            info = read_bind_info(info.annotations())
            self.scheduler.add_allocated(pod, info)
            self.bound[name] = info
            self.live.add(name)
            shown |= {"kind": "bind", "isolation": info.isolation}
        return shown

    def _delete_pod(self, event: Json) -> Json:
        name = event["pod"]
        pod = self.pod(name)
        if name in self.live:
            self.live.remove(name)
            self.scheduler.delete_allocated(pod)
        else:
            self.scheduler.delete_unallocated(pod)
        return {"kind": "ok"}

    def _add_bound_pod(self, event: Json) -> Json:
        text = event.get("bind_info_text") or json.dumps(event["bind_info"])
        pod = self.pod(event["pod"])
        info = read_bind_info({ANNOTATION_BIND_INFO: text})
        self.scheduler.add_allocated(pod, info)
        self.bound[pod.name] = info
        self.live.add(pod.name)
        return {"kind": "ok"}

    def _restart(self, event: Json) -> Json:
        self.scheduler = self._start(event.get("config") or self.scenario["config"])
        bound = event.get("bound", [])
        if event.get("pods_first"):
            self._replay(bound)
        for node in event.get("up", []):
            self.scheduler.set_node(node, healthy=True)
        if not event.get("pods_first"):
            self._replay(bound)
        self.live = set(bound)
        return {"kind": "ok"}

    def _replay(self, names: list[str]) -> None:
        for name in names:
            if name not in self.bound:
                continue
            try:
                self.scheduler.add_allocated(self.pod(name), self.bound[name])
            except CellsUserError:
                continue

    def state(self) -> Json:
        """The state in the vectors' form, whole."""
        physical = self.scheduler.physical_cluster()
        groups = {each.name: group_json(each.as_json()["status"]) for each in self.scheduler.groups()}
        found: Json = {"groups": groups, "leaves": {}, "badNodes": [], "badAbove": [], "vcs": {}}
        for top in physical:
            _walk(top, found)
        found["badNodes"] = sorted(set(found["badNodes"]))
        found["badAbove"].sort()
        if not found["badAbove"]:
            del found["badAbove"]
        for name, cells in self.scheduler.virtual_clusters().items():
            shown: Json = {"cells": {}}
            opportunistic = [each.address.removesuffix("-opp") for each in cells if each.address.endswith("-opp")]
            for each in cells:
                if not each.address.endswith("-opp"):
                    shown["cells"][each.address] = _owned(each)
            if opportunistic:
                shown["opportunistic"] = sorted(opportunistic)
            found["vcs"][name] = shown
        return found


def ok(_: object) -> Json:
    """The decision of events that only may fail."""
    return {"kind": "ok"}


def bind_info_json(info: BindInfo) -> Json:
    return {
        "node": info.node,
        "leafCellIsolation": list(info.leaf_cell_isolation),
        "cellChain": info.cell_chain,
        "affinityGroupBindInfo": [
            {
                "podPlacements": [
                    {
                        "physicalNode": each.node,
                        "physicalLeafCellIndices": list(each.indices),
                        "preassignedCellTypes": list(each.preassigned_types),
                    }
                    for each in member.pod_placements
                ]
            }
            for member in info.members
        ],
    }


def group_json(status: Json) -> Json:
    found = {"vc": status["vc"], "priority": status["priority"], "state": status["state"]}
    for key, name in (
        ("physical", "physicalPlacement"),
        ("virtual", "virtualPlacement"),
        ("pods", "allocatedPods"),
        ("preempting", "preemptingPods"),
    ):
        if status.get(name):
            found[key] = status[name]
    if "virtual" in found:
        found["virtual"] = {cell: sorted(leaves) for cell, leaves in found["virtual"].items()}
    if "lazyPreemptionStatus" in status:
        found["lazyPreemptedBy"] = status["lazyPreemptionStatus"]["preemptor"]
    return found


def _walk(cell: CellStatus, found: Json, *, below_node: bool = False) -> None:
    if not cell.healthy and cell.is_node_level:
        found["badNodes"].append(cell.address)
    elif not cell.healthy and not below_node:
        found["badAbove"].append(cell.address)
    if not cell.children and cell.state.value != "Free":
        found["leaves"][cell.address] = [cell.state.value, cell.priority, cell.virtual_cluster]
    for child in cell.children:
        _walk(child, found, below_node=below_node or cell.is_node_level)


def _leaves(cell: CellStatus) -> list[CellStatus]:
    return [leaf for child in cell.children for leaf in _leaves(child)] or [cell]


def _owned(cell: CellStatus) -> Json:
    leaves = _leaves(cell)
    shown: Json = {"type": cell.kind, "leaves": dict(Counter(leaf.state.value for leaf in leaves))}
    if cell.priority != -2:
        shown["priority"] = cell.priority
    if cell.other is not None:
        shown["bound"] = cell.other.address
    if not cell.healthy:
        shown["bad"] = True
    bad = sum(not leaf.healthy for leaf in leaves)
    if bad:
        shown["badLeaves"] = bad
    return shown


def merged(state: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(state) if isinstance(state, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
