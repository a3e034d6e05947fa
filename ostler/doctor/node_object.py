"""Our Node object, read from the API server as the agent's own part for events would do it."""

from __future__ import annotations

from dataclasses import dataclass

from kube.bodies import JsonObject
from node.clocks import chance
from node.rules import Door
from ostler.agent.node_events import Environment, events_wanted
from ostler.config.settings import Settings


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The Node object, or why there is none: ``fault`` with ``fix``; ``off``: the API server is not asked.

    ``identity``: what tells that it is another machine's, empty for ours. ``server``: who answered.
    """

    node: JsonObject | None = None
    server: str = ""
    fault: str = ""
    fix: str = ""
    identity: str = ""
    off: bool = False


def ask_node(settings: Settings, surroundings: Environment) -> NodeAnswer:
    """Read our Node, with one attempt and short limits."""
    if not (events_wanted(settings, surroundings) or settings.kubernetes.patch_allocatable or _serves_claims(settings)):
        return NodeAnswer(off=True)
    if not settings.node_name:
        return NodeAnswer(fault="the node's name is not known", fix="give it with --node-name (in a pod spec.nodeName)")
    # Here and not above: the client library is slow to load, and most nodes need it only now.
    from kube.access import in_cluster
    from kube.bodies import path_of
    from kube.client import Client, RequestLimits
    from kube.errors import ConfigurationError, NodeNotOurs, RequestError
    from kube.kubeconfig import from_kubeconfig
    from kube.node_identity import check_node, read_machine

    kubeconfig, name = settings.kubernetes.kubeconfig, settings.node_name
    try:
        if kubeconfig is not None:
            access = from_kubeconfig(kubeconfig)
        else:
            access = in_cluster(surroundings.environment, surroundings.account)
        client = Client(access, random=chance, user_agent="ostler-doctor", limits=RequestLimits(3.0, 6.0, 1))
        try:
            node = client.get(path_of("api", "v1", "nodes", name))
        finally:
            client.close()
    except ConfigurationError as error:
        where = f"{error.path}: {error.field}" if error.field else error.path
        return NodeAnswer(fault=f"{where}: {error.problem}", fix=error.fix)
    except RequestError as error:
        return NodeAnswer(fault=str(error), fix=_FIXES.get(error.status, _OTHERWISE))
    identity = ""
    try:
        check_node(node, name, read_machine(surroundings.etc, settings.roots.sys))
    except NodeNotOurs as error:
        identity = f"Node {name} is not this machine: its {error.field} is {error.theirs}, here it is {error.ours}"
    return NodeAnswer(node, access.server, identity=identity)


def _serves_claims(settings: Settings) -> bool:
    """Whether the DRA door needs the API server; a recorded node is nobody's."""
    if settings.inventory.recorded is not None:
        return False
    return settings.kubernetes.door_by_node or any(rule.door.has(Door.DRA) for rule in settings.rules)


_FIXES = {
    401: "give a valid token or certificate, in a pod the service account's",
    403: "let the account get nodes (the chart's ClusterRole does)",
    404: "give the name of the Node as --node-name (in a pod spec.nodeName)",
}
_OTHERWISE = "see whether the API server can be reached from this node"
