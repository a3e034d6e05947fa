"""What the runtime was told of containers: the annotations of the kubelet's request, which no container can see."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.cluster.rig.node import RigNode

_FIELD = descriptor_pb2.FieldDescriptorProto
_POD, _CONTAINER = "io.kubernetes.pod.name", "io.kubernetes.container.name"


def told_annotations(node: RigNode) -> dict[tuple[str, str], dict[str, str]]:
    """By pod and container the annotations of every container, running or not."""
    path = node.folder / "run-containerd" / "containerd.sock"
    with grpc.insecure_channel(f"unix:{path}", options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
        call: Any = channel.unary_unary("/runtime.v1.RuntimeService/ListContainers", None, _ANSWER.FromString)
        answer = call(b"", timeout=60.0)
    return {(each.labels[_POD], each.labels[_CONTAINER]): dict(each.annotations) for each in answer.containers}


def _answer() -> Any:
    """The message of ListContainersResponse, with those of its fields that are read here."""
    file = descriptor_pb2.FileDescriptorProto(name="ostler/tests/cri.proto", package="ostler.cri", syntax="proto3")
    text = {"type": _FIELD.TYPE_STRING, "label": _FIELD.LABEL_OPTIONAL}
    container = file.message_type.add(name="Container")
    for number, name in ((8, "labels"), (9, "annotations")):
        entry = container.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        for place, field in enumerate(("key", "value"), 1):
            entry.field.add(name=field, number=place, **text)
        kind = f".ostler.cri.Container.{entry.name}"
        container.field.add(
            name=name, number=number, type=_FIELD.TYPE_MESSAGE, label=_FIELD.LABEL_REPEATED, type_name=kind
        )
    answer = file.message_type.add(name="Answer")
    kind = ".ostler.cri.Container"
    answer.field.add(name="containers", number=1, type=_FIELD.TYPE_MESSAGE, label=_FIELD.LABEL_REPEATED, type_name=kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("ostler.cri.Answer"))


_ANSWER = _answer()
