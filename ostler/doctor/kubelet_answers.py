"""What the kubelet's pod resources API says, asked once with deadlines; nothing is changed by it.

``List`` lets the kubelet drop records of pods that are gone, which it does by itself as well; so ``Get`` of a pod that
cannot exist is asked to tell kubelets apart, and ``List`` is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import grpc

from node.kubelet.podresources import OPTIONS, TIMEOUT, ids_by_resource
from node.sockets import is_answered, is_socket
from ostler.doctor.reading import hidden
from protos.podresources.v1 import api_pb2, api_pb2_grpc

ANSWERED = ""
HIDDEN, MISSING, DEAD, LISTENING = "hidden", "missing", "dead", "answered"


@dataclass(frozen=True, slots=True)
class KubeletAnswers:
    """``state``: ``hidden`` (this user may not look), ``missing``, ``dead`` (nobody listens) or ``answered``.

    ``faults``: by method what it said instead of an answer, empty for an answer. ``allocatable``: ids of healthy
    devices by resource, None where the kubelet did not tell.
    """

    state: str
    faults: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, frozenset[str]] | None = None


def socket_state(socket: Path) -> str:
    """``hidden``, ``missing``, ``dead`` or ``answered``."""
    if hidden(socket):
        return HIDDEN
    if not is_socket(socket):
        return MISSING
    if not os.access(socket, os.W_OK):
        return HIDDEN  # Whoever may not write cannot connect.
    return LISTENING if is_answered(socket) else DEAD


def ask_kubelet(socket: Path, timeout: float = TIMEOUT) -> KubeletAnswers:
    """Ask the pod resources API at ``socket``, each question for at most so many seconds."""
    state = socket_state(socket)
    if state != LISTENING:
        return KubeletAnswers(state)
    faults: dict[str, str] = {}
    with grpc.insecure_channel(f"unix:{socket}", options=OPTIONS) as channel:
        stub = api_pb2_grpc.PodResourcesListerStub(channel)
        answer: list[api_pb2.AllocatableResourcesResponse] = []
        faults["GetAllocatableResources"] = _fault(
            lambda: answer.append(stub.GetAllocatableResources(api_pb2.AllocatableResourcesRequest(), timeout=timeout))
        )
        nobody = api_pb2.GetPodResourcesRequest(pod_name="-", pod_namespace="-")
        faults["Get"] = _fault(lambda: stub.Get(nobody, timeout=timeout))
    return KubeletAnswers(LISTENING, faults, ids_by_resource(answer[0]) if answer else None)


def _fault(question: Callable[[], object]) -> str:
    try:
        question()
    except grpc.RpcError as error:
        call = cast("grpc.Call", error)  # What a call raises is always the call itself, too.
        return f"{call.code().name}: {call.details() or ''}"
    return ANSWERED
