"""What of a Node object says through which doors its devices are offered."""

from __future__ import annotations

from kube.bodies import JsonObject, object_at
from node.door_policy.choice import ANNOTATION, LABEL, NodeWords


def stripped(body: JsonObject) -> JsonObject:
    """The parts of a Node that are read here: it changes every few seconds, and has 20 kB of images and the like."""
    metadata = object_at(body, "metadata")
    kept: JsonObject = {key: metadata.get(key) for key in ("name", "uid", "resourceVersion")}
    for part, key in (("labels", LABEL), ("annotations", ANNOTATION)):
        text = object_at(metadata, part).get(key)
        kept[part] = {key: text} if isinstance(text, str) else {}
    return {"metadata": kept, "status": {"nodeInfo": object_at(body, "status", "nodeInfo")}}


def words_of(body: JsonObject) -> NodeWords:
    """Label and annotation of a Node, whole or ``stripped``."""
    label = object_at(body, "metadata", "labels").get(LABEL)
    annotation = object_at(body, "metadata", "annotations").get(ANNOTATION)
    return NodeWords(label if isinstance(label, str) else None, annotation if isinstance(annotation, str) else None)
