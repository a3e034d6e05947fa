"""Reads what `ostler cells` works on: configurations, discovered cells, and pods; faults end the command."""

from __future__ import annotations

import argparse

from kube.bodies import JsonObject, object_at, text_at
from kube.json_stream import Fields
from node.documents import DocumentLimits, DocumentRefused
from node.yaml_text import parse_yaml_all
from ostler.cells.discovery import DiscoveredCells, discover
from ostler.cli.exits import CommandFailed, Exit
from ostler.pools.source import read_input, read_source
from scheduling.cells.configuration import CellsConfiguration, CellsConfigurationError, read_configuration
from scheduling.cells.pod import (
    ANNOTATION_BIND_INFO,
    ANNOTATION_GROUP,
    ANNOTATION_SPEC,
    BindInfo,
    CellPod,
    PodTextError,
    read_bind_info,
    read_pod_spec,
)
from scheduling.explain.cluster import apply

STDIN = "-"
_LIMITS = DocumentLimits(values=10_000_000)
"""All pods of a large cluster have some hundred values each."""
_OVER = ("Succeeded", "Failed")


def read_cells(name: str) -> CellsConfiguration:
    """The configuration of a file. Raises ``CommandFailed``."""
    try:
        return read_configuration(read_input(name), name)
    except CellsConfigurationError as error:
        raise CommandFailed(str(error), Exit.CONFIG) from error


def read_discovered(arguments: argparse.Namespace) -> tuple[DiscoveredCells, str]:
    """The cells of the cluster or of the files of ``--from``, and what they are called. Raises ``CommandFailed``."""
    state = read_source(arguments)
    found = discover(apply(state.taint_rules, state.slices).slices, state.nodes)
    return found, ", ".join(arguments.origin) or state.origin


class ScheduledPod:
    """A pod with a scheduling spec; ``bind_info`` is None while it waits."""

    __slots__ = ("bind_info", "pod")

    def __init__(self, pod: CellPod, bind_info: BindInfo | None) -> None:
        self.pod = pod
        self.bind_info = bind_info


def read_pods(name: str) -> list[ScheduledPod]:
    """The pods of a file that the cell scheduler places, in its order; what it cannot read ends the command."""
    try:
        documents = parse_yaml_all(read_input(name), _LIMITS)
    except DocumentRefused as error:
        raise CommandFailed(f"{name}: {error}; correct the file", Exit.USAGE) from error
    bodies: list[JsonObject] = []
    for document in documents:
        items = document.get("items") if isinstance(document, dict) else document
        bodies += [each for each in (items if isinstance(items, list) else [document]) if isinstance(each, dict)]
    return scheduled(bodies, name)


def running_pods(arguments: argparse.Namespace) -> list[ScheduledPod]:
    """The pods of ``--pods``, else with ``--cluster`` those of the cluster, else none. Raises ``CommandFailed``."""
    if arguments.pods:
        return read_pods(arguments.pods)
    return _read_cluster_pods(arguments) if arguments.cluster else []


def _read_cluster_pods(arguments: argparse.Namespace) -> list[ScheduledPod]:
    """The pods of the cluster that kubectl would use. Raises ``CommandFailed``."""
    from kube.bodies import whole
    from kube.collection import Collection, read_whole
    from kube.errors import KubeError
    from ostler.explain.access import open_cluster
    from scheduling.explain.state import ExplainError

    annotations = dict.fromkeys((ANNOTATION_SPEC, ANNOTATION_GROUP, ANNOTATION_BIND_INFO), True)
    names = dict.fromkeys(("name", "namespace", "uid", "resourceVersion", "deletionTimestamp"), True)
    fields: Fields = {"metadata": {**names, "annotations": annotations}, "status": {"phase": True}}
    try:
        with open_cluster(arguments) as cluster:
            pods = read_whole(Collection(cluster.client, "/api/v1/pods", {}, whole, fields), 500)
            return scheduled(list(pods.objects), "")
    except (ExplainError, KubeError) as error:
        raise CommandFailed(str(error), Exit.USAGE) from error


def scheduled(bodies: list[JsonObject], source: str) -> list[ScheduledPod]:
    """The pods among these that have a scheduling spec and are not over. Raises ``CommandFailed``."""
    found = []
    for body in bodies:
        metadata = object_at(body, "metadata")
        annotations = {key: text for key, text in object_at(metadata, "annotations").items() if isinstance(text, str)}
        if ANNOTATION_SPEC not in annotations or text_at(body, "status", "phase") in _OVER:
            continue
        namespace, name = text_at(metadata, "namespace") or "default", text_at(metadata, "name")
        try:
            spec = read_pod_spec(annotations, namespace, name)
            info = read_bind_info(annotations) if ANNOTATION_BIND_INFO in annotations else None
        except PodTextError as error:
            where = f"{source}: " if source else ""
            raise CommandFailed(f"{where}pod {namespace}/{name}: {error}", Exit.USAGE) from error
        uid = text_at(metadata, "uid") or f"{namespace}/{name}"
        found.append(ScheduledPod(CellPod(uid, namespace, name, spec), info))
    return found
