"""``ostler probe``: what serves a Unix socket, as grpcurl would show it, without grpcurl."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from node.sockets import is_answered, is_socket
from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.output import add_format, print_document
from protos.agent.v1alpha1 import agent_pb2, agent_pb2_grpc
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc
from protos.podresources.v1 import api_pb2 as podresources_pb2
from protos.podresources.v1 import api_pb2_grpc as podresources_pb2_grpc

TIMEOUT = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Connect to a Unix socket and show what answers: services by reflection, health, and the answers of\n"
        "known APIs (device plugin, plugin registration, pod resources, ostler).\n"
        "Makes only calls that change nothing. Also works on other plugins' sockets."
    )
    parser.add_argument("path", type=Path, metavar="SOCKET")
    add_format(parser, ("yaml", "json"))


def run(arguments: argparse.Namespace) -> int:
    """Probe and print; fails when nobody listens."""
    path: Path = arguments.path
    if not path.exists():
        raise CommandFailed(f"{path}: there is no such file")
    if not is_socket(path):
        raise CommandFailed(f"{path}: is not a socket")
    if not is_answered(path):
        raise CommandFailed(f"{path}: no process listens; the one that made this socket is gone")
    with grpc.insecure_channel(f"unix:{path}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=TIMEOUT)
        except grpc.FutureTimeoutError as error:
            raise CommandFailed(f"{path}: something listens there, but it does not speak gRPC") from error
        document = {"socket": str(path), "services": _services(channel), **_answers(channel)}
    print_document({key: value for key, value in document.items() if value is not None}, arguments.output)
    return Exit.OK


def _services(channel: grpc.Channel) -> dict[str, list[str]] | None:
    # Here and not above: reflection is slow to load and only this needs it.
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    database = ProtoReflectionDescriptorDatabase(channel)
    try:
        names = sorted(database.get_services())
    except grpc.RpcError:
        return None  # No reflection: the answers below are all there is to see.
    pool = DescriptorPool(database)
    return {name: [_signature(method) for method in pool.FindServiceByName(name).methods] for name in names}


def _signature(method: MethodDescriptor) -> str:
    stream_in = "stream " if method.client_streaming else ""
    stream_out = "stream " if method.server_streaming else ""
    request, response = method.input_type.full_name, method.output_type.full_name
    return f"{method.name}({stream_in}{request}) returns ({stream_out}{response})"


def _answers(channel: grpc.Channel) -> dict[str, object]:
    empty = api_pb2.Empty()
    plugin = api_pb2_grpc.DevicePluginStub(channel)
    watcher = registration_pb2_grpc.RegistrationStub(channel)
    pods = podresources_pb2_grpc.PodResourcesListerStub(channel)
    agent = agent_pb2_grpc.AgentStub(channel)
    answers = {
        "registration": _ask(lambda: watcher.GetInfo(registration_pb2.InfoRequest(), timeout=TIMEOUT)),
        "options": _ask(lambda: plugin.GetDevicePluginOptions(empty, timeout=TIMEOUT)),
        "list": _ask(lambda: next(iter(plugin.ListAndWatch(empty, timeout=TIMEOUT)))),
        "pods": _ask(lambda: pods.List(podresources_pb2.ListPodResourcesRequest(), timeout=TIMEOUT)),
        "status": _ask(lambda: agent.GetStatus(agent_pb2.GetStatusRequest(), timeout=TIMEOUT)),
    }
    return {key: value for key, value in answers.items() if value is not None}


def _ask(question: Callable[[], Message]) -> dict[str, object] | None:
    try:
        answer = question()
    except (grpc.RpcError, StopIteration):
        return None  # This API is not served here, which is what the reader sees.
    return MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
