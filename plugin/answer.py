"""Container edits as an Allocate answer.

Field by field; nothing is decided here. Hooks have no place in an answer: they come by CDI or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from node.edits.allocation import container_edits
from node.edits.model import ContainerEdits
from node.edits.options import ListStrategy
from node.offer import OfferedDevice, ResourceOffer
from plugin.servicer import Render
from protos.deviceplugin.v1beta1 import api_pb2


def answer(edits: ContainerEdits) -> api_pb2.ContainerAllocateResponse:
    """The message that says the same as ``edits``."""
    message = api_pb2.ContainerAllocateResponse(
        envs=dict(edits.env),
        annotations=dict(edits.annotations),
        cdi_devices=[api_pb2.CDIDevice(name=name) for name in edits.cdi_devices],
    )
    # Added in place, which costs half of what handing over lists of them does.
    for mount in edits.mounts:
        message.mounts.add(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
    nodes = message.devices
    for node in edits.nodes:
        nodes.add(container_path=node.path, host_path=node.host_path, permissions=node.permissions)
    return message


def random_uuid() -> str:
    """A random UUID; its module is loaded by the strategy that needs it, cdi-annotations alone."""
    import uuid

    return str(uuid.uuid4())


def renderer(offer: ResourceOffer, unique: Callable[[], str] = random_uuid) -> Render:
    """The function that makes one container's answer of its devices, by the resource's name and its rule's options."""
    resource, options = offer.resource, offer.rule.edits
    annotated = ListStrategy.CDI_ANNOTATIONS in options.strategies
    own = {item.device.name: item.edits for item in offer.devices if item.edits is not None}

    def render(devices: Sequence[OfferedDevice]) -> api_pb2.ContainerAllocateResponse:
        given = [(item.id, item.device) for item in devices]
        return answer(container_edits(resource, given, options, unique() if annotated else "", own))

    return render
