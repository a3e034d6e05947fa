"""The controller of a node's own slices, which writes nothing before the Node has proved to be this machine.

A wrong node name would put this machine's devices on another node, and take that node's own slices for surplus ones of
ours. So nothing is asked of slices, and nothing is written, before the Node was read and believed (``OwnNode``). It is
checked again whenever it is read again, because a Node of that name may be another machine by then.

A module of its own, because it is loaded after registration: it brings the reflector and the rules for objects.
"""

from __future__ import annotations

from driver.node_watch.following import NodeCheck
from driver.publishing.publication import ErrorHandler
from driver.slices.controller import Controller
from driver.slices.model import node_owner
from driver.slices.options import NodeReader, Options, SliceApi, Watching
from kube.bodies import JsonObject
from kube.reflector import Handler, Reflector
from node.clocks import Clocks

WATCHING = "watching slices"


class NodeController(Controller):
    """Keeps the slices that belong to a Node; writes nothing before the first ``update``."""

    def __init__(
        self,
        api: SliceApi,
        driver_name: str,
        node_name: str,
        tell: ErrorHandler,
        clocks: Clocks,
        *,
        nodes: NodeReader | None = None,
    ) -> None:
        """``tell`` hears of every fault of writing and watching, with the work it arose in, in any thread."""
        self._tell = tell
        self._random = clocks.random
        self._reflector: Reflector | None = None
        super().__init__(
            Options(
                api,
                driver_name,
                owner=node_owner(node_name),
                wait_for_update=True,
                error_handler=tell,
                watch=self._reflected,
                clocks=clocks,
                nodes=nodes,
            )
        )

    def watch_fault(self) -> str:
        """Why slices cannot be listed or watched at the moment, empty where they can."""
        return "" if self._reflector is None else self._reflector.status().failing

    def _tell_watch_fault(self, error: Exception) -> None:
        self._tell(error, WATCHING)

    def _reflected(self, client: SliceApi, selector: str, handler: Handler) -> Watching:
        source = client.slices({"fieldSelector": selector})
        self._reflector = Reflector(
            source, handler, random=self._random, told=self._tell_watch_fault, name="slices of the node"
        )
        return self._reflector


class OwnNode:
    """Reads one Node with ``api``; ``check`` raises ``KubeError`` for another machine's."""

    def __init__(self, api: SliceApi, check: NodeCheck) -> None:
        self._api = api
        self._check = check
        self._proved: dict[str, JsonObject] = {}

    def prove(self, name: str) -> None:
        """Read and check the Node; raises what reading or ``check`` raises."""
        self._proved[name] = self._read(name)

    def node(self, name: str) -> JsonObject:
        """The Node, which is ours. What was read for the proof is the first answer."""
        return self._proved.pop(name, None) or self._read(name)

    def _read(self, name: str) -> JsonObject:
        node = self._api.node(name)
        self._check(node)
        return node
