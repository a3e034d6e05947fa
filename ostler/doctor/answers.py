"""Asks the agent, the kubelet and the API server, each once, with deadlines and without changing anything.

The kubelet's pod resources: ``List`` makes the kubelet drop records of pods that are gone, as it does by itself; so a
call of ``Get`` for a pod that cannot exist distinguishes kubelets, and ``List`` is left alone. ``/healthz`` over plain
HTTP is a page that both the kubelet and the agent have. The Node object is read as the agent reads it for its events.
"""

from __future__ import annotations

import contextlib
import http.client
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import grpc

from kube.bodies import JsonObject, object_at, text_at
from node.clocks import chance
from node.kubelet.podresources import OPTIONS, TIMEOUT, ids_by_resource
from node.rules import Door, Doors
from node.sockets import is_answered, is_socket
from ostler.agent.api_server import ApiEnvironment
from ostler.agent.node_events import events_wanted
from ostler.cli.client import NoAgent, running_agent
from ostler.cli.exits import CommandFailed
from ostler.config.settings import Settings
from ostler.doctor.reading import hidden
from protos.agent.v1alpha1 import agent_pb2
from protos.podresources.v1 import api_pb2, api_pb2_grpc

if TYPE_CHECKING:
    from kube.client import Client

NO_AGENT = "no agent answers"
"""The finding of every check that needs an agent."""

AGENT_TIMEOUT = 5.0
"""Seconds for each call; all are answered from memory."""


@dataclass(frozen=True, slots=True)
class AgentAnswers:
    """The agent's answers; ``status`` and ``devices`` are None if it gave none.

    ``fault``: why there is no answer; ``listening``: whether somebody listens at the socket. ``holds``:
    None also if it does not serve the kubelet yet, or is too old to report them.
    """

    status: agent_pb2.GetStatusResponse | None = None
    devices: agent_pb2.ListDevicesResponse | None = None
    holds: agent_pb2.ListHoldsResponse | None = None
    fault: str = ""
    listening: bool = True

    @property
    def pid(self) -> int | None:
        """The agent's process id in its own PID namespace."""
        return self.status.pid if self.status is not None else None

    def healthy_ids(self) -> dict[str, frozenset[str]]:
        """Ids that the agent lists to the kubelet as healthy, by resource; including resources without any.

        Devices that only claims can get are not in the kubelet's lists.
        """
        found: dict[str, set[str]] = {item.name: set() for item in self.status.resources} if self.status else {}
        for device in self.devices.devices if self.devices is not None else ():
            if device.offered_as == "Healthy" and device.door != Doors.DRA:
                found.setdefault(device.resource, set()).update(device.healthy_ids or (device.offered_id,))
        return {resource: frozenset(ids) for resource, ids in found.items()}


def ask_agent(socket: Path) -> AgentAnswers:
    """Status, devices and holds of the agent at ``socket``."""
    try:
        with running_agent(socket) as agent:
            status = agent.GetStatus(agent_pb2.GetStatusRequest(), timeout=AGENT_TIMEOUT)
            devices = agent.ListDevices(agent_pb2.ListDevicesRequest(), timeout=AGENT_TIMEOUT)
    except NoAgent as error:
        return AgentAnswers(fault=str(error), listening=False)
    except OSError as error:
        return AgentAnswers(fault=f"{socket} cannot be reached ({error.strerror})", listening=False)
    except CommandFailed as error:
        return AgentAnswers(fault=str(error))
    try:
        with running_agent(socket) as agent:
            holds = agent.ListHolds(agent_pb2.ListHoldsRequest(), timeout=AGENT_TIMEOUT)
    except CommandFailed:
        holds = None  # A standby, or an agent before 1.0, which lacks this call; its status is known.
    return AgentAnswers(status, devices, holds)


ANSWERED = ""
HIDDEN, MISSING, DEAD, LISTENING = "hidden", "missing", "dead", "answered"


KubeletAnswer = TypeVar("KubeletAnswer")


@dataclass(frozen=True, slots=True)
class KubeletAnswers:
    """``state``: ``hidden`` (this user may not look), ``missing``, ``dead`` (nobody listens) or ``answered``.

    ``faults``: the error of each method, empty for an answer. ``allocatable``: ids of healthy devices by resource, None
    if the kubelet did not report them.
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
        return HIDDEN  # A user without write permission cannot connect.
    return LISTENING if is_answered(socket) else DEAD


def ask_kubelet(socket: Path, timeout: float = TIMEOUT) -> KubeletAnswers:
    """Ask the pod resources API at ``socket``, each call for at most ``timeout`` seconds."""
    state = socket_state(socket)
    if state != LISTENING:
        return KubeletAnswers(state)
    faults: dict[str, str] = {}
    with grpc.insecure_channel(f"unix:{socket}", options=OPTIONS) as channel:
        stub = api_pb2_grpc.PodResourcesListerStub(channel)
        request = api_pb2.AllocatableResourcesRequest()
        found, faults["GetAllocatableResources"] = _asked(stub.GetAllocatableResources, request, timeout)
        nobody = api_pb2.GetPodResourcesRequest(pod_name="-", pod_namespace="-")
        _, faults["Get"] = _asked(stub.Get, nobody, timeout)
    return KubeletAnswers(LISTENING, faults, None if found is None else ids_by_resource(found))


def _asked(method: Callable[..., KubeletAnswer], request: object, timeout: float) -> tuple[KubeletAnswer | None, str]:
    """The answer of a method, and the fault if there is none."""
    try:
        return method(request, timeout=timeout), ANSWERED
    except grpc.RpcError as error:
        call = cast("grpc.Call", error)  # The error that a call raises is also the call itself.
        return None, f"{call.code().name}: {call.details() or ''}"


PAGE_TIMEOUT = 3.0
"""Seconds for each step."""
_MOST = 2000
"""Bytes of a page to read; its first lines name what is unhealthy."""


@dataclass(frozen=True, slots=True)
class HealthPage:
    """``fault``: why there is no answer, empty if there is one; then its ``status`` and the beginning of its text."""

    fault: str = ""
    status: int = 0
    text: str = ""

    @property
    def well(self) -> bool:
        """Whether the answer is a good one."""
        return not self.fault and self.status == http.HTTPStatus.OK


def ask_page(host: str, port: int) -> HealthPage:
    """The page at an address, with the fault if there is none."""
    connection = http.client.HTTPConnection(host, port, timeout=PAGE_TIMEOUT)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        text = answer.read(_MOST).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return HealthPage(fault=str(error) or type(error).__name__)
    finally:
        connection.close()
    return HealthPage(status=answer.status, text=text.strip())


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The Node object, or why there is none: ``fault`` with ``fix``; ``off``: the API server is not asked.

    ``identity``: the proof that it is another machine's, empty for ours. ``server``: the API server that answered.
    """

    node: JsonObject | None = None
    server: str = ""
    fault: str = ""
    fix: str = ""
    identity: str = ""
    off: bool = False


def ask_node(settings: Settings, environment: ApiEnvironment) -> NodeAnswer:
    """Read this machine's Node, with one attempt and short limits."""
    chosen = settings.kubernetes
    is_used = events_wanted(settings, environment) or chosen.patch_allocatable or chosen.recorded_devices
    if not (is_used or _serves_claims(settings)):
        return NodeAnswer(off=True)
    if not settings.node_name:
        return NodeAnswer(fault="the node's name is not known", fix="give it with --node-name (in a pod spec.nodeName)")
    # Imported here: the client library is slow to load, and only these checks need it.
    from kube.bodies import path_of
    from kube.errors import ConfigurationError, NodeNotOurs, RequestError
    from kube.node_identity import check_node, read_machine

    name = settings.node_name
    try:
        with _api_client(settings, environment) as client:
            node, server = client.get(path_of("api", "v1", "nodes", name)), client.server
    except ConfigurationError as error:
        where = f"{error.path}: {error.field}" if error.field else error.path
        return NodeAnswer(fault=f"{where}: {error.problem}", fix=error.fix)
    except RequestError as error:
        return NodeAnswer(fault=str(error), fix=_FIXES.get(error.status, _OTHERWISE))
    identity = ""
    try:
        check_node(node, name, read_machine(environment.etc, settings.roots.sys))
    except NodeNotOurs as error:
        identity = f"Node {name} is not this machine: its {error.field} is {error.theirs}, here it is {error.ours}"
    return NodeAnswer(node, server, identity=identity)


@dataclass(frozen=True, slots=True)
class RightAnswer:
    """Whether the account may do what was asked, and the API server's ``reason``; ``fault``: why there is no answer."""

    is_granted: bool = False
    reason: str = ""
    fault: str = ""


def ask_right(
    settings: Settings, environment: ApiEnvironment, verb: str, resource: str, subresource: str
) -> RightAnswer:
    """Ask whether the agent's account may do this to core objects of all namespaces; the server stores nothing."""
    from kube.errors import KubeError

    attributes: JsonObject = {"verb": verb, "group": "", "resource": resource, "subresource": subresource}
    body: JsonObject = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        with _api_client(settings, environment) as client:
            answer = client.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    except KubeError as error:
        return RightAnswer(fault=str(error))
    status = object_at(answer, "status")
    return RightAnswer(status.get("allowed") is True, text_at(status, "reason"))


@contextlib.contextmanager
def _api_client(settings: Settings, environment: ApiEnvironment) -> Iterator[Client]:
    """A client with the agent's account, one attempt and short limits. Raises ``ConfigurationError``."""
    from kube.access import in_cluster
    from kube.client import Client, RequestLimits
    from kube.kubeconfig import from_kubeconfig

    kubeconfig = settings.kubernetes.kubeconfig
    if kubeconfig is not None:
        access = from_kubeconfig(kubeconfig)
    else:
        access = in_cluster(environment.variables, environment.account)
    client = Client(access, random=chance, user_agent="ostler-doctor", limits=RequestLimits(3.0, 6.0, 1))
    try:
        yield client
    finally:
        client.close()


def _serves_claims(settings: Settings) -> bool:
    """Whether the DRA door needs the API server; a recorded node has no Node object."""
    if settings.inventory.recorded is not None:
        return False
    return settings.kubernetes.door_by_node or any(rule.door.has(Door.DRA) for rule in settings.rules)


_FIXES = {
    401: "give a valid token or certificate, in a pod the service account's",
    403: "let the account get nodes (the chart's ClusterRole does)",
    404: "give the name of the Node as --node-name (in a pod spec.nodeName)",
}
_OTHERWISE = "check whether this node can reach the API server"
